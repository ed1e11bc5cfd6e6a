package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

// verifyCmd is "gantry verify".
type verifyCmd struct {
	Scheme   string   `help:"Scheme of the signature." enum:"auto,standard,body,qstash" default:"auto" placeholder:"auto|standard|body|qstash"`
	URL      string   `name:"url" help:"Public URL of the endpoint, as QStash knows it." placeholder:"URL"`
	KeyEnv   []string `name:"key-env" help:"Variable that holds keys. Repeatable; with qstash the current key comes first." placeholder:"NAME" sep:"none"`
	KeyFile  string   `name:"key-file" help:"File that holds keys." type:"path" placeholder:"FILE"`
	Request  string   `help:"File with the whole request, as it was captured; - for the input." type:"path" placeholder:"FILE"`
	Header   []string `help:"Header of the request, in place of --request. Repeatable." placeholder:"NAME: VALUE" sep:"none"`
	BodyFile string   `name:"body-file" help:"File with the body's bytes, in place of --request; - for the input." type:"path" placeholder:"FILE"`
	At       string   `help:"Time to judge by, RFC 3339 or Unix seconds; now by default." placeholder:"TIME"`
	JSON     bool     `name:"json" help:"One JSON object."`
}

// Help is the manual of the command.
func (*verifyCmd) Help() string {
	return `Checks the signature of a captured request, tells what passed, what did not, and what to do about it. Nothing is sent anywhere.
Keys come from variables or a file, never from the command line, where others could read them. Without --key-env and --key-file,
qstash takes QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY.

A capture must hold the very bytes of the body. A request that is older than its signature counts is judged with --at. Exit codes: 0
verified, 1 not verified, 2 wrong usage.

Examples:

  gantry verify --request captured.http --key-env HOOK_KEY
  gantry verify --request captured.http --key-env HOOK_KEY --at 2026-03-01T12:00:00Z
  gantry verify --scheme qstash --url https://app.example/hook --request captured.http
  gantry verify --header "X-Webhook-Signature: sha256=…" --body-file body.json --key-file keys --json | jq .checks`
}

// Run checks.
func (c *verifyCmd) Run(p *process) error {
	at, err := c.time()
	if err != nil {
		return err
	}
	taken, err := c.capture(p)
	if err != nil {
		return err
	}
	judge := &judge{capture: taken, url: c.URL, at: at, name: verify.Name(c.Scheme)}
	if c.Scheme == "auto" {
		judge.name = verify.Detect(taken.header)
		judge.detected = true
	}
	if judge.name == "" {
		return c.show(p, judge.unsigned())
	}
	if err := c.keys(p, judge); err != nil {
		return err
	}
	result, err := judge.judge()
	if err != nil {
		return err
	}
	return c.show(p, result)
}

// show writes the result and turns a refusal into the exit code.
func (c *verifyCmd) show(p *process, result *judgement) error {
	var err error
	if c.JSON {
		err = json.NewEncoder(p.out).Encode(result)
	} else {
		err = result.write(p.out, p.theme(p.out))
	}
	if err == nil && !result.Verified {
		return errReported
	}
	return err
}

// time reads --at.
func (c *verifyCmd) time() (time.Time, error) {
	if c.At == "" {
		return time.Now(), nil
	}
	if seconds, err := strconv.ParseInt(c.At, 10, 64); err == nil {
		return time.Unix(seconds, 0), nil
	}
	at, err := time.Parse(time.RFC3339, c.At)
	if err != nil {
		return time.Time{}, usagef("--at is neither a time such as 2026-03-01T12:00:00Z nor Unix seconds")
	}
	return at, nil
}

// capture reads the request.
func (c *verifyCmd) capture(p *process) (*capture, error) {
	inParts := len(c.Header) > 0 || c.BodyFile != ""
	switch {
	case c.Request != "" && inParts:
		return nil, usagef("--request holds everything; leave --header and --body-file out")
	case c.Request != "":
		raw, err := readCapture(p, c.Request)
		if err != nil {
			return nil, err
		}
		return parseCapture(raw)
	case !inParts:
		return nil, usagef("give the request with --request, or with --header and --body-file")
	}
	taken := newCapture()
	for _, line := range c.Header {
		if err := taken.addHeader(line); err != nil {
			return nil, usagef("--header: %w", err)
		}
	}
	if c.BodyFile == "" {
		taken.Notes = append(taken.Notes, "no --body-file: the body is taken to be empty")
		return taken, nil
	}
	body, err := readCapture(p, c.BodyFile)
	taken.body = body
	return taken, err
}

// maxCapture bounds a file with a request.
const maxCapture = 64 << 20

func readCapture(p *process, name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxCapture+1))
	if err == nil && len(raw) > maxCapture {
		err = errors.New("the capture is larger than 64 MiB")
	}
	return raw, err
}

// The usual variables of QStash's keys.
var qstashKeyVariables = []string{"QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY"}

// keys reads the keys for a scheme. No error shows one.
func (c *verifyCmd) keys(p *process, j *judge) error {
	var values []string
	for _, name := range c.KeyEnv {
		value, ok := p.env(name)
		if !ok || strings.TrimSpace(value) == "" {
			return usagef("--key-env: the variable%s is not set; the flag takes the name of a variable, never a key", shownVariable(name))
		}
		values = append(values, value)
	}
	if c.KeyFile != "" {
		text, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return err
		}
		values = append(values, string(bytes.TrimSpace(text)))
	}
	if len(values) == 0 && j.name == verify.NameQStash {
		for _, name := range qstashKeyVariables {
			value, _ := p.env(name)
			values = append(values, value)
		}
	}
	list := strings.Fields(strings.Join(values, " "))
	if len(list) == 0 {
		return usagef("no key: name the variable that holds it with --key-env, or the file with --key-file")
	}
	if j.name == verify.NameQStash {
		return j.useQStash(list)
	}
	keys, err := signature.ParseKeys(strings.Join(list, " "))
	if err != nil {
		return usagef("read the keys: %w", err)
	}
	j.keys, j.count = keys, keys.Len()
	return nil
}

var plainVariable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// shownVariable shows what is surely a name: somebody may have given the key.
func shownVariable(name string) string {
	if !plainVariable.MatchString(name) {
		return ""
	}
	return " " + name
}

// useQStash takes the current and the next key.
func (j *judge) useQStash(list []string) error {
	if len(list) > 2 {
		return usagef("QStash has two keys, the current and the next one; there are %d", len(list))
	}
	if j.url == "" {
		return usagef("QStash signs for one URL: give the endpoint's with --url, byte for byte as it was published to")
	}
	j.count = len(list)
	list = append(list, "")
	keys, err := qstash.ParseKeys(list[0], list[1], qstash.Production)
	if errors.Is(err, qstash.ErrDevelopmentKey) {
		j.capture.Notes = append(j.capture.Notes, "the keys are the published ones of local servers: a deployed receiver refuses them")
		keys, err = qstash.ParseKeys(list[0], list[1], qstash.Development)
	}
	if err != nil {
		return usagef("read the keys: %w", err)
	}
	j.qstash = keys
	return nil
}

// describe says which of several keys it was.
func describe(key, count int) string { return fmt.Sprintf("key %d of %d", key+1, count) }

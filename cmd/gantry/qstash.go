package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

// qstashCmd is "gantry qstash".
type qstashCmd struct {
	Dev qstashDevCmd `cmd:"" help:"Imitate QStash on this machine, for development and tests."`
}

// qstashDevCmd is "gantry qstash dev".
type qstashDevCmd struct {
	Listen string   `help:"Address of the API." default:"127.0.0.1:8080"`
	Token  string   `help:"Token of the API, instead of the public one." placeholder:"TOKEN"`
	Fast   float64  `help:"Divide delays and waits before retries by this." default:"1"`
	Fault  []string `help:"Misbehave: KIND, or KIND=TIMES. Repeatable." placeholder:"KIND" sep:"none"`
}

// Help is the manual of the command.
func (*qstashDevCmd) Help() string {
	kinds := make([]string, 0, len(compat.FaultKinds()))
	for _, kind := range compat.FaultKinds() {
		kinds = append(kinds, string(kind))
	}
	return `Takes what clients publish to QStash, delivers it with QStash's signatures, retries and queues, and writes a line for
each attempt. It prints the variables that lead a client and a receiver to it. Everything is kept in memory.
The token and the keys are the published ones of QStash's own local server: whoever reaches the address can send
requests from this machine, so it listens here only, unless --token gives a secret.

Kinds of faults: ` + strings.Join(kinds, ", ") + `.
POST, GET and DELETE /_faults arms, lists and disarms them while it runs.

Examples:

  gantry qstash dev
  gantry qstash dev --listen 127.0.0.1:9000 --fast 100
  gantry qstash dev --fault duplicate=1 --fault 429-burst=2`
}

const (
	qstashReadTimeout = 10 * time.Second
	qstashGrace       = 3 * time.Second
)

// Run serves until the end is asked for.
func (c *qstashDevCmd) Run(ctx context.Context, p *process) (err error) {
	view := &qstashView{out: p.out, theme: p.theme(p.out)}
	server, err := c.server(view)
	if err != nil {
		return err
	}
	defer server.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	c.introduce(p, listener.Addr().String())
	return serveQStash(ctx, server, listener)
}

// serveQStash serves until ctx ends.
func serveQStash(ctx context.Context, server *compat.Server, listener net.Listener) error {
	api := &http.Server{
		Handler: server, ReadHeaderTimeout: qstashReadTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // what clients break off is no news
	}
	failed := make(chan error, 1)
	go func() { failed <- api.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), qstashGrace)
	defer cancel()
	if err := api.Shutdown(stop); err != nil {
		_ = api.Close() // whoever still reads has had the time
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// server makes the server and arms its faults.
func (c *qstashDevCmd) server(view *qstashView) (*compat.Server, error) {
	if c.Fast <= 0 {
		return nil, usagef("--fast is not above 0")
	}
	if c.token() == qstash.DevToken {
		if err := checkQStashListen(c.Listen); err != nil {
			return nil, err
		}
	}
	faults := make([]compat.Fault, 0, len(c.Fault))
	for _, text := range c.Fault {
		fault, err := compat.ParseFault(text)
		if err != nil {
			return nil, usagef("%w; see gantry qstash dev --help", err)
		}
		faults = append(faults, fault)
	}
	server, err := compat.New(compat.Config{
		Token: c.token(), Keys: compat.Keys{Current: qstash.DevCurrentKey, Next: qstash.DevNextKey},
		Speed: c.Fast, OnAttempt: view.attempt,
	})
	if err != nil {
		return nil, err
	}
	return server, server.Inject(faults...)
}

func (c *qstashDevCmd) token() string {
	if c.Token != "" {
		return c.Token
	}
	return qstash.DevToken
}

// checkQStashListen keeps a sender of requests with a public token on this
// machine.
func checkQStashListen(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--listen is not host:port")
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return usagef("everybody knows the token, so gantry qstash dev listens on this machine only; use 127.0.0.1, or a --token of your own")
}

// introduce says how to reach the server. The variables are all that goes to the
// output, so that they can be copied or read by a program.
func (c *qstashDevCmd) introduce(p *process, address string) {
	theme := p.theme(p.err)
	fmt.Fprintf(p.err, "%s\n", theme.Paint(screen.Yellow,
		"These are public development keys: never let a receiver that others can reach accept them."))
	fmt.Fprintf(p.out, "QSTASH_URL=http://%s\nQSTASH_TOKEN=%s\nQSTASH_CURRENT_SIGNING_KEY=%s\nQSTASH_NEXT_SIGNING_KEY=%s\n",
		address, c.token(), qstash.DevCurrentKey, qstash.DevNextKey)
	_, port, _ := net.SplitHostPort(address)
	if c.token() == qstash.DevToken {
		fmt.Fprintf(p.err, "With the JavaScript client, QSTASH_DEV=true QSTASH_DEV_PORT=%s does the same.\n", port)
	}
	if len(c.Fault) > 0 {
		fmt.Fprintf(p.err, "Faults: %s.\n", strings.Join(c.Fault, ", "))
	}
	fmt.Fprintln(p.err, theme.Paint(screen.Dim, "Messages are kept in memory only. Ctrl-C ends it."))
}

// qstashView writes a line for each attempt.
type qstashView struct {
	theme screen.Theme

	mu  sync.Mutex
	out io.Writer
}

// attempt writes one line: when, what came of it, where to, and what follows.
func (v *qstashView) attempt(a compat.Attempt) {
	outcome, style := string(a.Outcome), screen.Green
	switch a.Outcome {
	case compat.OutcomeRetry:
		outcome, style = "retry in "+a.RetryIn.Round(time.Millisecond).String(), screen.Yellow
	case compat.OutcomeFailed:
		style = screen.Red
	case compat.OutcomeCancelled:
		style = screen.Dim
	}
	status := strconv.Itoa(a.Status)
	if a.Status == 0 {
		status = "---"
	}
	line := fmt.Sprintf("%s  %s  %s %s  %s  %s", time.Now().Format("15:04:05.000"), status, a.Method, shownURL(a.URL), a.MessageID,
		v.theme.Paint(style, outcome))
	for _, note := range attemptNotes(a) {
		line += "  " + v.theme.Paint(screen.Dim, note)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.out, line)
}

// attemptNotes are what not every attempt has.
func attemptNotes(a compat.Attempt) (notes []string) {
	if a.Retried > 0 {
		notes = append(notes, "retried "+strconv.Itoa(a.Retried))
	}
	if a.Queue != "" {
		notes = append(notes, "queue "+a.Queue)
	}
	if a.CallbackOf != "" {
		notes = append(notes, "callback of "+a.CallbackOf)
	}
	for _, fault := range a.Faults {
		notes = append(notes, "fault "+string(fault))
	}
	if a.Err != nil {
		notes = append(notes, strings.ReplaceAll(a.Err.Error(), "\n", " "))
	}
	return notes
}

// shownURL leaves out what may be secret in an address: its user and its query.
func shownURL(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil {
		return "a URL"
	}
	shown := parsed.Scheme + "://" + parsed.Host + parsed.EscapedPath()
	if parsed.RawQuery != "" {
		shown += "?…"
	}
	return shown
}

//go:build clients

package clienttest_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/webhook/qstash"
)

// TestJavaScriptClients runs the tests of testdata/node against the command, and
// has our verifier judge what they sign.
func TestJavaScriptClients(t *testing.T) {
	signed := filepath.Join(t.TempDir(), "signed.jsonl")
	run := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "clients.test.mjs")
	run.Dir = filepath.Join("testdata", "node")
	run.Env = append(os.Environ(), "UPSTASH_DISABLE_TELEMETRY=", "SIGNED_FILE="+signed)
	run.Env = append(run.Env, startCommand(t)...)
	out, err := run.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the JavaScript tests: %v (make test-clients installs what they need)", err)
	}
	judgeSigned(t, signed)
}

// startCommand builds and starts gantry qstash dev, and returns the variables
// that it prints.
func startCommand(t *testing.T) (variables []string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "gantry")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/gantry-hooks/gantry/cmd/gantry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	command := exec.Command(binary, "qstash", "dev", "--listen", "127.0.0.1:0", "--fast", "1000000")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start the command: %v", err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("interrupt the command: %v", err)
		}
		<-drained
		if err := command.Wait(); err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for len(variables) < 4 && lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "QSTASH_") {
			t.Errorf("the command printed %q among its variables", lines.Text())
		}
		variables = append(variables, lines.Text())
	}
	go func() {
		defer close(drained)
		for lines.Scan() { // so that the command can go on writing
		}
	}()
	return variables
}

// judgeSigned verifies each line of what the JavaScript tests signed.
func judgeSigned(t *testing.T, path string) {
	t.Helper()
	keys, err := qstash.ParseKeys(qstash.DevCurrentKey, qstash.DevNextKey, qstash.Development)
	if err != nil {
		t.Fatalf("read the keys: %v", err)
	}
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
	if err != nil {
		t.Fatalf("make the verifier: %v", err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read what was signed: %v", err)
	}
	count := 0
	for line := range strings.Lines(string(raw)) {
		var signed struct{ Key, URL, Body, Signature string }
		if err := json.Unmarshal([]byte(line), &signed); err != nil {
			t.Fatalf("decode %s: %v", line, err)
		}
		verified, err := verifier.Verify([]string{signed.Signature}, signed.URL, []byte(signed.Body))
		if err != nil || verified.ByNext != (signed.Key == "next") {
			t.Errorf("%s: %+v, %v", line, verified, err)
		}
		if _, err := verifier.Verify([]string{signed.Signature}, signed.URL+"x", []byte(signed.Body)); err == nil {
			t.Errorf("%s: accepted for another URL", line)
		}
		count++
	}
	if count != 6 {
		t.Errorf("%d signatures, want 6", count)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
)

// defaultAPI is where "gantry dev" and "gantry serve" listen by default.
const defaultAPI = "http://127.0.0.1:8484"

// apiFlags are the flags of the commands that talk to a running system.
type apiFlags struct {
	API       string `name:"api" help:"Address of the API; GANTRY_API_URL, else ${api}." placeholder:"URL"`
	TokenFile string `help:"File with the bearer token; else GANTRY_TOKEN." type:"path" placeholder:"FILE"`
}

// client makes a client of the API that repeats its calls for retryFor while the
// system is unavailable; 0 fails at once.
func (f *apiFlags) client(p *process, retryFor time.Duration) (*client.Client, error) {
	address := f.API
	if address == "" {
		address, _ = p.env(varAPI)
	}
	if address == "" {
		address = defaultAPI
	}
	token, err := f.token(p)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		URL: address, Token: token, RetryFor: retryFor,
		OnRetry: func(cause error, after time.Duration) {
			fmt.Fprintf(p.err, "gantry: %v; trying again in %s\n", cause, after.Round(100*time.Millisecond))
		},
	})
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

func (f *apiFlags) token(p *process) (string, error) {
	if f.TokenFile == "" {
		token, _ := p.env(varToken)
		return token, nil
	}
	raw, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return "", usagef("read the token file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", usagef("%s does not hold one token", f.TokenFile)
	}
	return token, nil
}

// explain adds what to do about an error of the API.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w; is it running, and is --api right?", err)
}

// openInput opens a file, or standard input for "-".
func openInput(p *process, path string) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(p.in), "stdin", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", &usageError{err}
	}
	return f, path, nil
}

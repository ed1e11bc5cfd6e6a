package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

// FuzzHooksFile: what is accepted is JSON that the product's parser accepts.
func FuzzHooksFile(f *testing.F) {
	f.Add([]byte("hooks:\n- {id: a, type: onError, webhook: {url: /in}}\n"))
	f.Add([]byte(`{"hooks":[{"id":"a","type":"onError","webhook":{"url":"/in"}}]}`))
	f.Add([]byte("- &a [*a]"))
	path := filepath.Join(f.TempDir(), "hooks.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
		raw, err := config.LoadHooksFile(path)
		if err != nil {
			return
		}
		if _, err := tasks.ParseHooks(raw, tasks.ParseOptions{Mode: tasks.ParseRestore}); err != nil {
			t.Fatalf("accepted %q, whose JSON %q is refused: %v", text, raw, err)
		}
	})
}

// FuzzSettingsFile: what is accepted is valid and reads back from its own dump,
// unless a masked secret is in it.
func FuzzSettingsFile(f *testing.F) {
	f.Add([]byte("lane: {lease: 5s}\nwebhook: {header_env: [A, B*]}\n"))
	f.Add([]byte("api:\n  max_body: 1MiB\n  listen: ':0'\n"))
	path := filepath.Join(f.TempDir(), "gantry.yaml")
	env, _ := variables()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
		c, err := config.Load(config.Sources{File: path, Env: env})
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("loaded invalid settings: %v", err)
		}
		c.Redis.Password, c.Redis.URL, c.Redis.TLS, c.API.Tokens, c.Enrich = "", "", config.RedisTLS{}, nil, config.Defaults().Enrich
		if err := os.WriteFile(path, c.Redacted(), 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
		if _, err := config.Load(config.Sources{File: path, Env: env}); err != nil {
			t.Fatalf("refused its own dump %s: %v", c.Redacted(), err)
		}
	})
}

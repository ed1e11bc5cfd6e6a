package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/config"
)

// confCmd is "gantry config".
type confCmd struct {
	Check confCheckCmd `cmd:"" help:"Check the settings and show those in force, secrets masked."`
	Docs  confDocsCmd  `cmd:"" help:"Print the reference of all settings as Markdown."`
}

// confCheckCmd is "gantry config check".
type confCheckCmd struct {
	JSON bool `name:"json" help:"The verdict as one JSON object."`
}

// Help is the manual of the command.
func (*confCheckCmd) Help() string {
	return `Reads the settings as the other commands do (flags, variables, the file of --config, defaults), and the environment hooks.
Every mistake is listed with its place and what would be right; exit code 2 then.

Examples:

  gantry --config gantry.yaml config check
  GANTRY_LANE_LEASE=2s gantry config check`
}

// Run checks the settings.
func (c *confCheckCmd) Run(_ context.Context, p *process, global *cli) error {
	cfg, err := global.load(p, nil)
	if err == nil {
		// Environment hooks are no settings, but no command starts with broken ones.
		_, err = config.OpenEnvFile(cfg.EnvFile, p.env)
		if err != nil {
			err = &usageError{err}
		}
	}
	if c.JSON {
		return c.asJSON(p, err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "# valid; the settings in force:\n%s", cfg.Redacted())
	return err
}

func (c *confCheckCmd) asJSON(p *process, found error) error {
	verdict := struct {
		Valid    bool     `json:"valid"`
		Problems []string `json:"problems"`
	}{Valid: found == nil, Problems: []string{}}
	for _, problem := range config.SettingErrors(found) {
		verdict.Problems = append(verdict.Problems, problem.Error())
	}
	if found != nil && len(verdict.Problems) == 0 {
		verdict.Problems = append(verdict.Problems, found.Error())
	}
	if err := json.NewEncoder(p.out).Encode(verdict); err != nil {
		return err
	}
	if found != nil {
		return &usageError{errors.New("the settings are invalid")}
	}
	return nil
}

// confDocsCmd is "gantry config docs".
type confDocsCmd struct{}

// Help is the manual of the command.
func (*confDocsCmd) Help() string {
	return `Examples:

  gantry config docs > docs/config.md`
}

// Run prints the reference.
func (*confDocsCmd) Run(p *process) error {
	_, err := p.out.Write(config.Reference())
	return err
}

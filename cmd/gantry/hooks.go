package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
)

// hooksCmd is "gantry hooks".
type hooksCmd struct {
	Check   hooksCheckCmd   `cmd:"" help:"Check files of hooks by the rules of the API."`
	Explain hooksExplainCmd `cmd:"" help:"Which controls decide about a tool call, in which order, and what their errors mean?"`
}

// hooksCheckCmd is "gantry hooks check".
type hooksCheckCmd struct {
	Files []string `arg:"" help:"YAML or JSON files: a list of hooks, {hooks: [...]}, or {operations: {ID: [hooks]}}." type:"path" name:"file"`
	JSON  bool     `name:"json" help:"One JSON object a file, one a line."`
}

// Help is the manual of the command.
func (*hooksCheckCmd) Help() string {
	return `Needs no running system. The first mistake of each file is shown with its place and what would be right; exit code 1 then.

Examples:

  gantry hooks check hooks.yaml
  gantry hooks check examples/agent-run/hooks.json --json`
}

// checked is what --json prints for a file.
type checked struct {
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	Hooks int    `json:"hooks"`
	Error string `json:"error,omitempty"`
}

// Run checks files.
func (c *hooksCheckCmd) Run(_ context.Context, p *process) error {
	bad := 0
	encoder := json.NewEncoder(p.out)
	for _, file := range c.Files {
		hooks, err := feed.ReadHooks(file)
		verdict := checked{File: file, Valid: err == nil}
		if err != nil {
			bad++
			verdict.Error = err.Error()
		} else {
			verdict.Hooks = hooks.Count()
		}
		if c.JSON {
			if err := encoder.Encode(verdict); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			fmt.Fprintf(p.err, "gantry: %s\n", screen.Clean(err.Error()))
			continue
		}
		if _, err := fmt.Fprintf(p.out, "%s: %d hooks, all valid\n", file, verdict.Hooks); err != nil {
			return err
		}
	}
	if bad > 0 {
		return errReported
	}
	return nil
}

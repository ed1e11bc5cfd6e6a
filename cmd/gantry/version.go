package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set when a release is built: -ldflags "-X main.release=v1.2.3".
var release string

// version names what runs: the release, the module's version, or "devel".
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// versionCmd is "gantry version".
type versionCmd struct {
	JSON bool `name:"json" help:"One JSON object."`
}

// Help is the manual of the command.
func (*versionCmd) Help() string {
	return `Examples:

  gantry version
  gantry version --json`
}

// Run prints the version.
func (c *versionCmd) Run(p *process) error {
	if c.JSON {
		return json.NewEncoder(p.out).Encode(map[string]string{
			"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintf(p.out, "gantry %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// lanesCmd is "gantry lanes".
type lanesCmd struct {
	apiFlags
	Operation string `arg:"" optional:"" help:"Show the lane of this operation only, also when it is at rest."`
	Limit     int    `help:"Lanes at most." default:"100"`
	JSON      bool   `name:"json" help:"One JSON object a lane, one a line."`
}

// Help is the manual of the command.
func (*lanesCmd) Help() string {
	return `Shows the lanes that have something to do, and every hook that is parked: how often it was tried, why it failed, when
the next attempt is due and how many deliveries wait behind it.

Examples:

  gantry lanes
  gantry lanes run-report-7f3a
  gantry lanes --json | jq 'select(.waiting > 100)'`
}

// Run shows lanes.
func (c *lanesCmd) Run(ctx context.Context, p *process) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return usagef("--limit is out of range; use 1 to 1000")
	}
	api, err := c.client(p, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	var lanes []lane.Info
	if c.Operation != "" {
		info, err := api.Lane(ctx, c.Operation)
		if err != nil {
			return explain(err)
		}
		lanes = []lane.Info{info}
	} else if lanes, err = api.Lanes(ctx, c.Limit); err != nil {
		return explain(err)
	}
	if c.JSON {
		encoder := json.NewEncoder(p.out)
		for _, info := range lanes {
			if err := encoder.Encode(info); err != nil {
				return err
			}
		}
		return nil
	}
	if len(lanes) == 0 {
		_, err := fmt.Fprintln(p.out, "No lane has anything to do.")
		return err
	}
	return writeLanes(p, lanes)
}

func writeLanes(p *process, lanes []lane.Info) error {
	table := screen.NewTable(p.theme(p.out), "operation", "state", "waiting", "delayed", "next", "parked hook", "behind", "try", "why", "next try")
	for _, info := range lanes {
		cells := []screen.Cell{
			screen.Text(info.OperationID), screen.Text(info.State), screen.Number(info.Waiting), screen.Number(info.Delayed), screen.Number(info.Next),
		}
		if len(info.Parked) == 0 {
			table.Row(append(cells, screen.Cell{}, screen.Cell{}, screen.Cell{}, screen.Cell{}, screen.Cell{})...)
			continue
		}
		for _, parked := range info.Parked {
			table.Row(append(cells, parkedCells(parked)...)...)
			cells = []screen.Cell{screen.Text(" "), screen.Text(" "), screen.Text(" "), screen.Text(" "), screen.Text(" ")}
		}
	}
	return table.Write(p.out)
}

func parkedCells(parked lane.ParkedInfo) []screen.Cell {
	why := string(parked.Outcome.Class)
	if parked.Outcome.Status != 0 {
		why += fmt.Sprintf(" %d", parked.Outcome.Status)
	}
	return []screen.Cell{
		{Text: string(parked.Outcome.HookType) + " → " + parked.Outcome.HookID, Style: screen.Yellow},
		screen.Number(max(0, parked.Waiting-1)), screen.Number(parked.Attempt), screen.Text(why), screen.Text(clock(parked.DueAt)),
	}
}

// clock writes a time of Redis in milliseconds, for people of this place.
func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).Format("2006-01-02 15:04:05")
}

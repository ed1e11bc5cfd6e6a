package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
)

// deadCmd is "gantry dead".
type deadCmd struct {
	List   deadListCmd   `cmd:"" help:"List dead letters, oldest first."`
	Show   deadShowCmd   `cmd:"" help:"Show one dead letter with its event and its hooks."`
	Replay deadReplayCmd `cmd:"" help:"Put dead letters back to the tail of their hooks' queues."`
}

// filterFlags select dead letters.
type filterFlags struct {
	Operation string `help:"Of this operation only." placeholder:"ID"`
	Hook      string `help:"Of hooks with this id only." placeholder:"ID"`
	Type      string `help:"Of this hook type only." placeholder:"TYPE"`
	Class     string `help:"With this failure class only, such as http_5xx." placeholder:"CLASS"`
}

func (f filterFlags) filter() client.Filter {
	return client.Filter{Operation: f.Operation, Hook: f.Hook, Type: f.Type, Class: f.Class}
}

// deadPage is how many letters one request reads.
const deadPage = 200

// deadLetters reads all letters that a filter selects, page after page.
func deadLetters(ctx context.Context, api *client.Client, f client.Filter) iter.Seq2[client.DeadLetter, error] {
	return func(yield func(client.DeadLetter, error) bool) {
		cursor := ""
		for {
			page, err := api.DeadLetters(ctx, f, client.Page{Cursor: cursor, Limit: deadPage})
			if err != nil {
				yield(client.DeadLetter{}, err)
				return
			}
			for _, letter := range page.Letters {
				if !yield(letter, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// deadListCmd is "gantry dead list".
type deadListCmd struct {
	apiFlags
	filterFlags
	Limit int  `help:"Letters at most; 0 lists all." default:"0"`
	JSON  bool `name:"json" help:"One JSON object a letter, one a line."`
}

// Help is the manual of the command.
func (*deadListCmd) Help() string {
	return `A dead letter is a delivery that was given up, with its reason: attempts_exhausted, expired, endpoint_gone, no_retry or poison.

Examples:

  gantry dead list
  gantry dead list --hook billing --class http_4xx
  gantry dead list --json | jq -r .id`
}

// Run lists letters.
func (c *deadListCmd) Run(ctx context.Context, p *process) error {
	if c.Limit < 0 {
		return usagef("--limit is negative; use 0 for all")
	}
	api, err := c.client(p, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	table := screen.NewTable(p.theme(p.out), "id", "given up", "operation", "#", "event → hook", "try", "reason", "last failure")
	n := 0
	for letter, err := range deadLetters(ctx, api, c.filter()) {
		if err != nil {
			return explain(err)
		}
		if c.Limit > 0 && n == c.Limit {
			break
		}
		n++
		if c.JSON {
			if _, err := fmt.Fprintf(p.out, "%s\n", compact(letter.Raw)); err != nil {
				return err
			}
			continue
		}
		table.Row(letterCells(letter)...)
	}
	switch {
	case c.JSON:
		return nil
	case n == 0:
		_, err := fmt.Fprintln(p.out, "No dead letter.")
		return err
	}
	return table.Write(p.out)
}

func letterCells(l client.DeadLetter) []screen.Cell {
	o := l.Outcome
	failure := string(o.Class)
	if o.Status != 0 {
		failure += fmt.Sprintf(" %d", o.Status)
	}
	sequence, attempts := screen.Cell{}, screen.Cell{}
	if l.Sequence > 0 {
		sequence = screen.Number(l.Sequence)
	}
	if o.Attempt > 0 {
		attempts = screen.Number(o.Attempt)
	}
	hook := screen.Cell{}
	if o.HookType != "" {
		hook = screen.Text(string(o.HookType) + " → " + o.HookID)
	}
	return []screen.Cell{
		screen.Text(l.ID), screen.Text(clock(l.At)), screen.Text(l.OperationID), sequence, hook, attempts,
		{Text: string(o.Reason), Style: screen.Red},
		screen.Text(failure),
	}
}

// compact puts JSON on one line.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// deadShowCmd is "gantry dead show".
type deadShowCmd struct {
	apiFlags
	ID   string `arg:"" help:"Id of the letter, as dead list shows it."`
	JSON bool   `name:"json" help:"The whole document as the API has it."`
}

// Help is the manual of the command.
func (*deadShowCmd) Help() string {
	return `Header values of the hooks are masked unless they are templates alone, which hold no secret.

Examples:

  gantry dead show msg_3q2-7wAbCdEfGhIjKlMnOpQr
  gantry dead show msg_3q2-7wAbCdEfGhIjKlMnOpQr --json | jq .task.event`
}

// Run shows a letter.
func (c *deadShowCmd) Run(ctx context.Context, p *process) error {
	api, err := c.client(p, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	letter, err := api.DeadLetter(ctx, c.ID)
	if err != nil {
		return explain(err)
	}
	masked := maskLetter(letter.Raw)
	if c.JSON {
		_, err := fmt.Fprintf(p.out, "%s\n", compact(masked))
		return err
	}
	return showLetter(p, letter, masked)
}

func showLetter(p *process, l client.DeadLetter, masked json.RawMessage) error {
	theme := p.theme(p.out)
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s  %s\n", theme.Paint(screen.Dim, screen.Fit(name, 10)), screen.Clean(value))
		}
	}
	o := l.Outcome
	line("letter", l.ID)
	line("operation", l.OperationID)
	line("event", l.EventID)
	line("hook", strings.Trim(string(o.HookType)+" → "+o.HookID, " →"))
	line("given up", clock(l.At))
	line("reason", string(o.Reason))
	line("attempts", fmt.Sprint(o.Attempt))
	line("failure", strings.TrimSpace(fmt.Sprintf("%s %s", o.Class, o.Message)))
	var content struct {
		Task   json.RawMessage `json:"task"`
		Poison []byte          `json:"poison"`
	}
	if err := json.Unmarshal(masked, &content); err != nil {
		return fmt.Errorf("read the letter: %w", err)
	}
	if len(content.Task) > 0 {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, content.Task, "", "  "); err != nil {
			return fmt.Errorf("read the task: %w", err)
		}
		b.WriteString("\n")
		for part := range strings.SplitSeq(pretty.String(), "\n") {
			b.WriteString(screen.Clean(part) + "\n")
		}
	}
	if content.Poison != nil {
		fmt.Fprintf(&b, "\nno task: %q\n", content.Poison)
	}
	_, err := p.out.Write([]byte(b.String()))
	return err
}

// deadReplayCmd is "gantry dead replay".
type deadReplayCmd struct {
	apiFlags
	filterFlags
	IDs      []string      `arg:"" optional:"" name:"id" help:"Ids of letters."`
	All      bool          `help:"Every dead letter."`
	RetryFor time.Duration `help:"How long to go on trying while the system is unavailable." default:"1m"`
	JSON     bool          `name:"json" help:"Totals as one JSON object."`
}

// Help is the manual of the command.
func (*deadReplayCmd) Help() string {
	return `Puts letters back to the tail of their hooks' queues, several of one hook in their original order, with a fresh
budget of attempts. Name ids, or filters, or --all. Poison, which is no task, cannot be replayed.

Examples:

  gantry dead replay msg_3q2-7wAbCdEfGhIjKlMnOpQr
  gantry dead replay --hook billing --class http_5xx
  gantry dead replay --all`
}

// replayBatch is how many letters one request puts back, so that progress is
// seen; maxReplay is how many it may.
const (
	replayBatch = 100
	maxReplay   = 1000
)

// Run replays letters.
func (c *deadReplayCmd) Run(ctx context.Context, p *process) error {
	filtered := c.filter() != client.Filter{}
	ways := 0
	for _, given := range []bool{len(c.IDs) > 0, filtered, c.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usagef("say which letters: ids, or filters, or --all")
	}
	api, err := c.client(p, c.RetryFor)
	if err != nil {
		return err
	}
	defer api.Close()
	ids := c.IDs
	if len(ids) == 0 {
		if ids, err = c.selected(ctx, api); err != nil {
			return explain(err)
		}
	}
	return c.replay(ctx, p, api, ids)
}

// selected reads the letters of now, so that what dies again during the replay is
// not put back twice, and sorts them, because batches must not change the order
// of a hook's events.
func (c *deadReplayCmd) selected(ctx context.Context, api *client.Client) ([]string, error) {
	var letters []client.DeadLetter
	for letter, err := range deadLetters(ctx, api, c.filter()) {
		if err != nil {
			return nil, err
		}
		letter.Raw = nil
		letters = append(letters, letter)
	}
	slices.SortStableFunc(letters, func(a, b client.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.OperationID, b.OperationID), cmp.Compare(a.Sequence, b.Sequence))
	})
	ids := make([]string, len(letters))
	for i, letter := range letters {
		ids[i] = letter.ID
	}
	return ids, nil
}

func (c *deadReplayCmd) replay(ctx context.Context, p *process, api *client.Client, ids []string) error {
	batch := replayBatch
	if len(c.IDs) > 0 {
		batch = maxReplay // the API sorts what it gets at once
	}
	bar := newBar(p.err, p.theme(p.err), len(ids), "replay")
	var total client.Replayed
	for len(ids) > 0 {
		n := min(batch, len(ids))
		done, err := api.Replay(ctx, ids[:n])
		if err != nil {
			bar.end("")
			return fmt.Errorf("%w; %d letters were put back before", explain(err), total.Replayed)
		}
		ids = ids[n:]
		total.Replayed += done.Replayed
		total.NotReplayed = append(total.NotReplayed, done.NotReplayed...)
		bar.add(n)
	}
	bar.end(fmt.Sprintf("put %d letters back", total.Replayed))
	for _, refused := range total.NotReplayed {
		fmt.Fprintf(p.err, "gantry: %s was not put back: %s\n", screen.Clean(refused.ID), refused.Reason)
	}
	if c.JSON {
		if err := json.NewEncoder(p.out).Encode(total); err != nil {
			return err
		}
	}
	if len(total.NotReplayed) > 0 {
		return errReported
	}
	return nil
}

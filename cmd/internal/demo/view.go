package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

// View writes one line for each attempt and for each control that is asked. It is safe for concurrent use.
type View struct {
	mu     sync.Mutex
	out    io.Writer
	theme  screen.Theme
	now    func() time.Time
	headed bool
}

// NewView makes a view.
func NewView(out io.Writer, theme screen.Theme) *View {
	return &View{out: out, theme: theme, now: time.Now}
}

// The widths of the columns; the longest hook type has 25 characters.
const (
	timeWidth      = 12
	operationWidth = 16
	sequenceWidth  = 5
	typeWidth      = 25
	hookWidth      = 14
	attemptWidth   = 3
)

// Attempt writes the line of an attempt.
func (v *View) Attempt(a worker.Attempt) {
	text, style := outcome(a)
	d := a.Delivery
	v.write(line{
		operation: d.OperationID, mark: "#" + strconv.FormatInt(d.Sequence, 10), hookType: d.Type, hook: d.Hook.ID,
		try: strconv.Itoa(d.Attempt), text: text, style: style,
	})
}

// Asked writes the line of a control that was asked before or after a tool call.
func (v *View) Asked(req webhook.ControlRequest, reply webhook.ControlReply) {
	text, style := decision(req.Type, reply)
	v.write(line{operation: req.OperationID, mark: "ask", hookType: req.Type, hook: req.Hook.ID, text: text, style: style})
}

// Relayed is an attempt that a relay made at a receiver.
type Relayed struct {
	// Host and Path are of the address.
	Host, Path string
	// Attempt counts from 1; Text says what came of it.
	Attempt   int
	Text      string
	Delivered bool
}

// Relayed writes the line of a relay's attempt.
func (v *View) Relayed(r Relayed) {
	style := screen.Yellow
	if r.Delivered {
		style = screen.Green
	}
	v.write(line{operation: r.Host, mark: "relay", hook: r.Path, try: strconv.Itoa(r.Attempt), text: r.Text, style: style})
}

// line is one line of the view.
type line struct {
	operation, mark string
	hookType        tasks.HookType
	hook, try, text string
	style           screen.Style
}

func (v *View) write(l line) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.headed {
		v.headed = true
		v.head()
	}
	fmt.Fprintf(v.out, "%s  %s  %s  %s → %s  %s  %s\n",
		v.theme.Paint(screen.Dim, v.now().Format("15:04:05.000")),
		screen.Fit(screen.Clean(l.operation), operationWidth),
		screen.Fit(l.mark, sequenceWidth),
		screen.Fit(string(l.hookType), typeWidth),
		v.theme.Paint(screen.Cyan, screen.Fit(screen.Clean(l.hook), hookWidth)),
		screen.Fit(l.try, attemptWidth),
		v.theme.Paint(l.style, l.text))
}

// decision says what a control's reply counts as.
func decision(phase tasks.HookType, reply webhook.ControlReply) (string, screen.Style) {
	switch {
	case reply.Cancelled:
		return "taken back", screen.Dim
	case reply.Class != "":
		return "no answer: " + string(reply.Class), screen.Yellow
	}
	read := control.ReadReply(phase, reply.Status, reply.Body)
	switch read.Class {
	case tasks.ControlAllow:
		return "allowed in " + short(reply.Elapsed), screen.Green
	case tasks.ControlDeny:
		return "denied in " + short(reply.Elapsed) + ": " + screen.Clean(read.Reason), screen.Red
	case tasks.ControlNotification:
		return "no objection in " + short(reply.Elapsed), screen.Green
	case tasks.ControlError, tasks.ControlCancelled:
	}
	return "no answer: " + string(read.Failure), screen.Yellow
}

func (v *View) head() {
	text := screen.Fit("time", timeWidth) + "  " + screen.Fit("operation", operationWidth) + "  " +
		screen.Fit("event", sequenceWidth+2+typeWidth) + " → " + screen.Fit("hook", hookWidth) + "  " +
		screen.Fit("try", attemptWidth) + "  outcome"
	fmt.Fprintln(v.out, v.theme.Paint(screen.Dim, text))
}

func outcome(a worker.Attempt) (string, screen.Style) {
	r := a.Result
	why := string(r.Class)
	if r.Status != 0 {
		why += " " + strconv.Itoa(r.Status)
	}
	switch {
	case r.Delivered && a.Delivery.Attempt > 1:
		return fmt.Sprintf("delivered %d on attempt %d", r.Status, a.Delivery.Attempt), screen.Green
	case r.Delivered:
		return fmt.Sprintf("delivered %d in %s", r.Status, short(r.Elapsed)), screen.Green
	case a.Standing == lane.StandingDead && r.Reason == "":
		return fmt.Sprintf("dead: given up after %d attempts (%s)", a.Delivery.Attempt, why), screen.Red
	case a.Standing == lane.StandingDead:
		return fmt.Sprintf("dead: %s (%s)", r.Reason, why), screen.Red
	}
	return fmt.Sprintf("%s, retry in %s", why, short(a.DueIn)), screen.Yellow
}

// short writes a duration with two digits that matter.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
}

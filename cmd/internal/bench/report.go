package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
)

// Figures are named measurements.
type Figures map[string]float64

// Target is the bound of one figure: at least Min, or at most Max.
type Target struct {
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// AtLeast and AtMost make targets.
func AtLeast(v float64) Target { return Target{Min: &v} }

// AtMost makes a target with an upper bound.
func AtMost(v float64) Target { return Target{Max: &v} }

func (t Target) met(v float64) bool {
	return (t.Min == nil || v >= *t.Min) && (t.Max == nil || v <= *t.Max)
}

func (t Target) String() string {
	if t.Min != nil {
		return fmt.Sprintf("≥ %g", *t.Min)
	}
	return fmt.Sprintf("≤ %g", *t.Max)
}

// Report is the result of one bench.
type Report struct {
	Bench       string             `json:"bench"`
	Contenders  map[string]Figures `json:"contenders"`
	Figures     Figures            `json:"figures"`
	Targets     map[string]Target  `json:"targets"`
	Met         bool               `json:"met"`
	Environment map[string]any     `json:"environment"`
}

func newReport(name string) *Report {
	return &Report{
		Bench: name, Contenders: map[string]Figures{}, Figures: Figures{}, Targets: map[string]Target{},
		Environment: map[string]any{"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": runtime.NumCPU()},
	}
}

// judge sets Met: every target has a figure, and every figure holds.
func (r *Report) judge() {
	r.Met = true
	for name, t := range r.Targets {
		v, ok := r.Figures[name]
		if !ok || !t.met(v) {
			r.Met = false
		}
	}
}

// JSON writes the report as one object on one line.
func (r *Report) JSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bench %s\n", r.Bench)
	for _, name := range sortedKeys(r.Contenders) {
		fmt.Fprintf(&b, "  %-18s", name)
		for _, f := range sortedKeys(r.Contenders[name]) {
			fmt.Fprintf(&b, " %s=%s", f, short(r.Contenders[name][f]))
		}
		b.WriteByte('\n')
	}
	for _, name := range sortedKeys(r.Figures) {
		verdict := ""
		if t, ok := r.Targets[name]; ok {
			verdict = t.String() + "  met"
			if !t.met(r.Figures[name]) {
				verdict = t.String() + "  MISSED"
			}
		}
		fmt.Fprintf(&b, "  %-34s %12s  %s\n", name, short(r.Figures[name]), verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func short(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// median of the values; 0 for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}

// percentile p (0 to 1) of the values.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

// mergeMedians takes figure by figure the median of several repetitions.
func mergeMedians(runs []Figures) Figures {
	out := Figures{}
	for name := range runs[0] {
		var vs []float64
		for _, r := range runs {
			vs = append(vs, r[name])
		}
		out[name] = median(vs)
	}
	return out
}

// note writes progress for people, to standard error, so that standard output
// holds the report alone.
func note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// White-box: what is tested here is the arithmetic behind the figures, which no
// caller sees by itself.

func TestReportIsMetOnlyWhenEveryTargetHolds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		figures Figures
		met     bool
	}{
		"all hold":         {Figures{"ratio": 3, "lost": 0}, true},
		"one is under":     {Figures{"ratio": 2.99, "lost": 0}, false},
		"one is over":      {Figures{"ratio": 4, "lost": 1}, false},
		"one is missing":   {Figures{"ratio": 4}, false},
		"more than needed": {Figures{"ratio": 4, "lost": 0, "other": 9}, true},
	} {
		r := newReport("x")
		r.Figures = row.figures
		r.Targets = map[string]Target{"ratio": AtLeast(3), "lost": AtMost(0)}
		r.judge()
		if r.Met != row.met {
			t.Errorf("%s: met = %v, want %v", name, r.Met, row.met)
		}
	}
}

func TestReportIsOneLineOfJSON(t *testing.T) {
	t.Parallel()
	r := newReport("x")
	r.Contenders["asynq"] = Figures{"per_second": 10}
	r.Targets["ratio"] = AtLeast(3)
	var out bytes.Buffer
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q is not one line", out.String())
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bench", "contenders", "figures", "targets", "met", "environment"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("no field %q in %s", name, out.String())
		}
	}
}

func TestMediansAndPercentiles(t *testing.T) {
	t.Parallel()
	got := mergeMedians([]Figures{{"a": 1, "b": 9}, {"a": 5, "b": 7}, {"a": 3, "b": 8}})
	if diff := cmp.Diff(Figures{"a": 3, "b": 8}, got); diff != "" {
		t.Errorf("medians (-want +got):\n%s", diff)
	}
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(100 - i)
	}
	if p := percentile(values, 0.99); p != 100 {
		t.Errorf("p99 = %v, want 100", p)
	}
	if p := percentile(values, 0.5); p != 51 {
		t.Errorf("p50 = %v, want 51", p)
	}
	if p := percentile(nil, 0.5); p != 0 {
		t.Errorf("p50 of nothing = %v, want 0", p)
	}
}

package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

const format = "lobe-hooks-conformance/1"

var casesDir = flag.String("cases", "testdata/cases", "directory of the case files, relative to this package or to the module")

func TestMain(m *testing.M) {
	// The limit protects workers; here a loaded machine must not decide a case.
	tasks.SetMatchTimeout(2 * time.Second)
	// The regular expression engine's clock runs on for a second or two.
	servertest.Main(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// caseFile is one file of cases.
type caseFile struct {
	Format string            `json:"format"`
	File   string            `json:"file"`
	Cases  []json.RawMessage `json:"cases"`
}

// runners are the files that are run, unsupported those that are known and
// belong to parts of Gantry that do not exist yet.
var (
	runners = map[string]func(*run){
		"validation":   runValidation,
		"matcher":      runMatcher,
		"payload":      runPayload,
		"headers":      runHeaders,
		"url":          runURL,
		"email_cache":  runEmailCache,
		"env_hooks":    runEnvHooks,
		"dispatch":     runDispatch,
		"mock":         runMock,
		"tool_context": runToolContext,

		"control_response": runControlResponse,
		"control_chain":    runControlChain,

		"deferred": runDeferred,
		"approval": runApproval,
	}
	unsupported = map[string]string{}
)

// TestConformance runs every case of the directory.
func TestConformance(t *testing.T) {
	files := readCases(t, *casesDir)
	lab := newLab(t)
	var all []*tally
	for _, file := range files {
		counts := &tally{file: file.File}
		all = append(all, counts)
		t.Run(file.File, func(t *testing.T) {
			for _, raw := range file.Cases {
				id := caseID(raw)
				t.Run(id, func(t *testing.T) {
					t.Parallel()
					verdict := execute(t, lab, file.File, raw)
					counts.add(id, verdict)
					verdict.report(t)
				})
			}
		})
	}
	table := summary(all)
	t.Log("\n" + table)
	fmt.Print(table)
}

// readCases reads the files of dir that are in the format; others are named and
// left alone.
func readCases(t *testing.T, dir string) []caseFile {
	t.Helper()
	dir = findDir(t, dir)
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatalf("list the cases: %v", err)
	}
	var files []caseFile
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("read the cases: %v", err)
		}
		var file caseFile
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Errorf("read the cases: %s: %v", name, err)
			continue
		}
		if file.Format != format {
			t.Logf("%s is in the format %q, not %q: not run", name, file.Format, format)
			continue
		}
		if file.File == "" {
			file.File = strings.TrimSuffix(filepath.Base(name), ".json")
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatalf("no file in the format %s in %s", format, dir)
	}
	return files
}

// findDir resolves a relative directory against this package, where go test
// runs, and then against the module, where its caller probably is.
func findDir(t *testing.T, dir string) string {
	t.Helper()
	for _, candidate := range []string{dir, filepath.Join("..", dir)} {
		if info, err := os.Stat(candidate); err == nil && info.IsDir() {
			return candidate
		}
	}
	t.Fatalf("there is no directory %s", dir)
	return ""
}

func caseID(raw json.RawMessage) string {
	var c struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &c); err != nil || c.ID == "" {
		return "unnamed"
	}
	return c.ID
}

// tally counts the verdicts of one file.
type tally struct {
	file string
	mu   sync.Mutex
	// passed counts; the others list ids with their first line of why.
	passed              int
	failed, unsupported []string
}

func (c *tally) add(id string, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(v.problems) > 0:
		first, _, _ := strings.Cut(v.problems[0], "\n")
		c.failed = append(c.failed, id+": "+first)
	case v.unsupported != "":
		c.unsupported = append(c.unsupported, id)
	default:
		c.passed++
	}
}

// summary is the table at the end, with the ids of what did not pass.
func summary(all []*tally) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "file\tpassed\tfailed\tunsupported\t")
	var passed, failed, open int
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", c.file, c.passed, len(c.failed), len(c.unsupported))
		passed, failed, open = passed+c.passed, failed+len(c.failed), open+len(c.unsupported)
	}
	fmt.Fprintf(w, "total\t%d\t%d\t%d\t\n", passed, failed, open)
	if err := w.Flush(); err != nil {
		return err.Error()
	}
	for _, c := range all {
		slices.Sort(c.failed)
		for _, line := range c.failed {
			fmt.Fprintf(&b, "failed: %s/%s\n", c.file, line)
		}
	}
	for _, c := range all {
		slices.Sort(c.unsupported)
		if len(c.unsupported) > 0 {
			fmt.Fprintf(&b, "unsupported: %s: %s\n", c.file, strings.Join(c.unsupported, " "))
		}
	}
	return b.String()
}

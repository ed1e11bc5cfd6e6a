package conformance_test

import (
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// journal keeps every line that the product logs.
type journal struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	failure bool
	hook    string
	text    string
}

// Levels implements logrus.Hook.
func (*journal) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (j *journal) Fire(entry *logrus.Entry) error {
	text, err := (&logrus.JSONFormatter{DisableHTMLEscape: true}).Format(entry)
	if err != nil {
		return err
	}
	hook, named := entry.Data[tasks.LogHookID].(string)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line{failure: named && entry.Level <= logrus.WarnLevel, hook: hook, text: string(text)})
	return nil
}

// logger is a logger that writes to j only.
func (j *journal) logger() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.TraceLevel)
	log.AddHook(j)
	return log
}

// failures are the hooks of which a failure was logged, each once, sorted.
func (j *journal) failures() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	hooks := []string{}
	for _, l := range j.lines {
		if l.failure {
			hooks = append(hooks, l.hook)
		}
	}
	slices.Sort(hooks)
	return slices.Compact(hooks)
}

// checkSafe notes each secret that stands in a line.
func (r *run) checkSafe(j *journal, secrets []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		for _, secret := range secrets {
			if strings.Contains(l.text, secret) {
				r.problemf("log shows %q: %s", secret, l.text)
			}
		}
	}
}

// sortedSet is a list without regard to order and repetition.
func sortedSet(list []string) []string {
	set := append([]string{}, list...)
	slices.Sort(set)
	return slices.Compact(set)
}

package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gantry-hooks/gantry/tasks"
)

// EnvFile is an environment that can change while the process runs: a file of
// KEY=VALUE lines laid over a base. Open it with OpenEnvFile. Its methods are
// safe for concurrent use, and Lookup takes no lock.
type EnvFile struct {
	path   string
	base   tasks.Environment
	values atomic.Pointer[map[string]string] // never modified once stored
	reload sync.Mutex                        // one Reload at a time, so the last one wins
}

// OpenEnvFile reads the file at path; "" means no file, and only base is
// looked at. A nil base means the process's environment. It fails on an
// unreadable or malformed file, and on invalid environment hooks.
func OpenEnvFile(path string, base tasks.Environment) (*EnvFile, error) {
	if base == nil {
		base = os.LookupEnv
	}
	file := &EnvFile{path: path, base: base}
	if err := file.Reload(); err != nil {
		return nil, err
	}
	return file, nil
}

// Lookup returns the value of a variable: the file's, else the base's. It is a
// tasks.Environment.
func (f *EnvFile) Lookup(name string) (value string, ok bool) {
	if value, ok = (*f.values.Load())[name]; ok {
		return value, true
	}
	return f.base(name)
}

// Reload reads the file again and, if the environment hooks of the result are
// valid, switches to it. On an error everything stays as it was; the error
// names variables and lines, never values.
func (f *EnvFile) Reload() error {
	f.reload.Lock()
	defer f.reload.Unlock()
	values := map[string]string{}
	if f.path != "" {
		var err error
		if values, err = readEnvFile(f.path); err != nil {
			return fmt.Errorf("read env file: %w", err)
		}
	}
	if _, err := EnvironmentHooks(overlay(values, f.base)); err != nil {
		return err
	}
	f.values.Store(&values)
	return nil
}

var (
	errAssignment = errors.New("is not KEY=VALUE")
	errQuotes     = errors.New("has a value with an unfinished quote or text after it")
	errNUL        = errors.New("has a value with a NUL character")
	errTwice      = errors.New("sets a variable for the second time")
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// readEnvFile parses a file of KEY=VALUE lines. Blank lines and lines that
// start with # are skipped and "export " before a name is dropped. A value in
// double quotes may hold \n, \t, \" and \\, one in single quotes is literal, any
// other runs to the end of the line; nothing is expanded.
func readEnvFile(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	values := map[string]string{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, err := parseAssignment(line)
		if _, twice := values[name]; err == nil && twice {
			err = errTwice
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at(path, number), err)
		}
		values[name] = value
	}
	return values, nil
}

func parseAssignment(line string) (name, value string, err error) {
	name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !found || !variableName.MatchString(name) {
		return "", "", errAssignment
	}
	if strings.ContainsRune(value, 0) {
		return "", "", errNUL
	}
	switch {
	case strings.HasPrefix(value, `"`):
		value, err = unquote(value)
	case strings.HasPrefix(value, "'"):
		inner, closed := strings.CutSuffix(value[1:], "'")
		if !closed || strings.Contains(inner, "'") {
			return "", "", errQuotes
		}
		value = inner
	}
	return name, value, err
}

func unquote(value string) (string, error) {
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			if i != len(value)-1 {
				return "", errQuotes
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(value) {
				return "", errQuotes
			}
			b.WriteString(unescape(value[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", errQuotes
}

// unescape returns what \c stands for; an unknown escape stays as written.
func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '"', '\\':
		return string(c)
	}
	return `\` + string(c)
}

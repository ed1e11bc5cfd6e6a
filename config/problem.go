package config

import (
	"errors"
	"strings"

	"github.com/agext/levenshtein"
)

// SettingError is one mistake in the settings: where it stands, what is wrong and
// what would be right. It never holds a secret.
type SettingError struct {
	// Path is the dotted name of the setting, such as "lane.lease", or the unknown
	// name itself.
	Path string
	// Source is where the value came from: "gantry.yaml:12", a variable's name,
	// "flag", or "" for a default.
	Source string
	// Wrong and Right complete the sentence; Right may be "".
	Wrong string
	Right string
}

// Error returns the problem as one line: place, fault, remedy.
func (p *SettingError) Error() string {
	var b strings.Builder
	b.WriteString(p.Path)
	if p.Source != "" && p.Source != p.Path {
		b.WriteString(" (" + p.Source + ")")
	}
	b.WriteString(": " + p.Wrong)
	if p.Right != "" {
		b.WriteString("; " + p.Right)
	}
	return b.String()
}

// SettingErrors returns every SettingError within an error of Load or Validate, in
// order, for callers that print them one by one.
func SettingErrors(err error) []*SettingError {
	if problem, ok := errors.AsType[*SettingError](err); ok && !joined(err) {
		return []*SettingError{problem}
	}
	var all []*SettingError
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			all = append(all, SettingErrors(one)...)
		}
	}
	return all
}

func joined(err error) bool {
	_, ok := err.(interface{ Unwrap() []error })
	return ok
}

// problems collects mistakes, so that one run shows them all.
type problems []*SettingError

func (p *problems) add(path, wrong, right string) {
	*p = append(*p, &SettingError{Path: path, Wrong: wrong, Right: right})
}

func (p problems) err() error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errors.Join(errs...)
}

// didYouMean names the candidate nearest to name, or "" when none is near
// enough to be what was meant.
func didYouMean(name string, candidates []string) string {
	best, distance := "", 1+max(2, len(name)/4)
	for _, candidate := range candidates {
		if d := levenshtein.Distance(name, candidate, nil); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

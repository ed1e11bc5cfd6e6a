package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

// envPrefix starts the name of every variable that is Gantry's own, so that an
// unknown one under it is a mistake.
const envPrefix = "GANTRY_"

// Sources says where the settings come from. The zero value means the
// process's environment over the defaults.
type Sources struct {
	// File is the path of a YAML file; "" means none.
	File string
	// Env looks variables up; nil means the process's environment. A variable that
	// is set but empty counts as unset.
	Env tasks.Environment
	// Names lists the variables of Env, in which unknown GANTRY_ names are refused.
	// nil means the process's names when Env is nil too, and no such check otherwise.
	Names []string
	// Others lists GANTRY_ names that are no settings but read elsewhere in the
	// program, and therefore not unknown.
	Others []string
	// Overrides are the values of flags by dotted path, such as "api.listen". They
	// win over everything else.
	Overrides map[string]string
}

// Load reads the settings: overrides over variables over the file over the
// defaults. The variables of the env file that these name are laid over Env. It
// returns every problem it finds, joined; SettingErrors takes them apart.
func Load(sources Sources) (*Config, error) {
	l := &loader{config: Defaults(), origin: map[string]string{}}
	l.fields = fieldsOf(l.config)
	if sources.Env == nil {
		sources.Env = os.LookupEnv
		if sources.Names == nil {
			sources.Names = environmentNames(os.Environ())
		}
	}
	if sources.File != "" {
		l.readFile(sources.File)
	}
	l.readEnvFile(&sources)
	l.readVariables(sources)
	l.readOverrides(sources.Overrides)
	l.problems = append(l.problems, l.validate()...)
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return l.config, nil
}

// loader carries one Load from source to source.
type loader struct {
	config   *Config
	fields   []field
	origin   map[string]string // path → where its value came from
	problems problems
}

// assign sets f from text and remembers where the text stood.
func (l *loader) assign(f field, text, origin string) {
	l.origin[f.path] = origin
	if problem := f.set(text); problem != nil {
		problem.Source = origin
		l.problems = append(l.problems, problem)
	}
}

func (l *loader) lookup(path string) (field, bool) {
	i := slices.IndexFunc(l.fields, func(f field) bool { return f.path == path })
	if i < 0 {
		return field{}, false
	}
	return l.fields[i], true
}

// readEnvFile lays the env file over the variables. The path itself comes from
// a flag, the process's environment or the YAML file, never from the env file.
func (l *loader) readEnvFile(sources *Sources) {
	envFile, _ := l.lookup("env_file")
	path, origin := l.config.EnvFile, l.origin[envFile.path]
	if value, ok := sources.Env(envFile.env); ok && value != "" {
		path, origin = value, envFile.env
	}
	if value, ok := sources.Overrides[envFile.path]; ok {
		path, origin = value, originFlag
	}
	if path == "" {
		return
	}
	values, err := readEnvFile(path)
	if err != nil {
		problem := envFile.problem("cannot be used: "+err.Error(), "name a readable file of KEY=VALUE lines")
		problem.Source = origin
		l.problems = append(l.problems, problem)
		return
	}
	if _, ok := values[envFile.env]; ok {
		l.problems = append(l.problems, &SettingError{
			Path: envFile.env, Source: path, Wrong: "names another env file", Right: "remove it from the env file",
		})
	}
	delete(values, envFile.env)
	sources.Env = overlay(values, sources.Env)
	for name := range values {
		sources.Names = append(slices.Clip(sources.Names), name)
	}
}

const originFlag = "flag"

func (l *loader) readVariables(sources Sources) {
	known := make([]string, len(l.fields))
	for i, f := range l.fields {
		known[i] = f.env
		if text, ok := sources.Env(f.env); ok && text != "" {
			l.assign(f, text, f.env)
		}
	}
	names := slices.Compact(slices.Sorted(slices.Values(sources.Names)))
	for _, name := range names {
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(sources.Others, name) {
			continue
		}
		if !slices.Contains(known, name) && !serviceLink(name, sources.Env) {
			l.problems.add(name, "is not a variable of Gantry", didYouMean(name, known))
		}
	}
}

var serviceLinkName = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_|$)|_PORT_[0-9]+_(TCP|UDP|SCTP)(_|$)`)

// serviceLink reports whether Kubernetes put the variable there: it describes
// each Service of the namespace to every pod, and one may well be called gantry.
func serviceLink(name string, env tasks.Environment) bool {
	if strings.HasSuffix(name, "_PORT") {
		value, _ := env(name)
		return strings.Contains(value, "://")
	}
	return serviceLinkName.MatchString(name)
}

func (l *loader) readOverrides(overrides map[string]string) {
	for _, f := range l.fields {
		if text, ok := overrides[f.path]; ok {
			l.assign(f, text, originFlag)
		}
	}
	for path := range overrides {
		if _, ok := l.lookup(path); !ok {
			l.problems.add(path, "is not a setting", didYouMean(path, l.paths()))
		}
	}
}

func (l *loader) paths() []string {
	paths := make([]string, len(l.fields))
	for i, f := range l.fields {
		paths[i] = f.path
	}
	return paths
}

// validate checks the rules between values, leaving out settings that could
// not even be read: their default would only give a second, false problem.
func (l *loader) validate() problems {
	unread := map[string]bool{}
	for _, problem := range l.problems {
		unread[problem.Path] = true
	}
	var found problems
	for _, problem := range l.config.check() {
		if unread[problem.Path] {
			continue
		}
		problem.Source = l.origin[problem.Path]
		found = append(found, problem)
	}
	return found
}

// environmentNames returns the names of "NAME=value" pairs.
func environmentNames(pairs []string) []string {
	names := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	return names
}

func overlay(values map[string]string, base tasks.Environment) tasks.Environment {
	return func(name string) (string, bool) {
		if value, ok := values[name]; ok {
			return value, true
		}
		return base(name)
	}
}

func at(path string, line int) string { return fmt.Sprintf("%s:%d", path, line) }

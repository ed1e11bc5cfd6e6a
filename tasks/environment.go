package tasks

// Environment looks up a variable by its exact name, like os.LookupEnv. It is
// injected everywhere, so that a change (SIGHUP) is seen at the next use and a
// test needs no process environment.
type Environment func(name string) (value string, ok bool)

// EnvironmentHooks returns the hooks that the deployment's environment asks
// for now, in evaluation order. It is called anew at each evaluation; an error
// means an invalid configuration and is never read as "no hooks"
// (docs/behaviour.md §17).
type EnvironmentHooks func() ([]Hook, error)

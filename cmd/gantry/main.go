// Command gantry is the one binary of Gantry: the API, the worker, the tools of
// operators and a demonstration of all of it. Each subcommand has a file of its
// own; "gantry COMMAND --help" is its manual.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(runMain())
}

// runMain gives the process's signals their meaning: the first SIGINT or SIGTERM
// asks for a graceful end, the second ends the process at once.
func runMain() int {
	keepHeapFloor(os.LookupEnv)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
			return
		}
		<-stop
		os.Exit(exitInterrupted)
	}()
	return run(ctx, os.Args[1:], &process{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, names: environmentNames(os.Environ()), hangups: hangups,
		strayLog: strayLog,
	})
}

// hangups hears SIGHUP until stop is called.
func hangups() (requests <-chan os.Signal, stop func()) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	return heard, func() { signal.Stop(heard) }
}

// strayLog makes w take what libraries write to the process-wide log.
func strayLog(w io.Writer) {
	log.SetFlags(0)
	log.SetOutput(w)
}

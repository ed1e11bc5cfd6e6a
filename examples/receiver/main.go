// Command receiver is an endpoint for hooks: it takes what is signed by Standard
// Webhooks, or by QStash, runs each message once, and prints it.
//
//	RECEIVER_KEY=whsec_… go run ./examples/receiver
//
// The variables say what is accepted: RECEIVER_KEY holds one or several keys of
// Standard Webhooks, QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY those
// of QStash, for the address RECEIVER_URL. With REDIS_URL, any number of these
// processes may stand behind one address. Without any key it does not start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
	"github.com/gantry-hooks/gantry/webhook/verify/redisstore"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8486", "address to listen at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, settings{listen: *listen, env: os.Getenv, out: os.Stdout, log: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

// settings are what the program is told.
type settings struct {
	listen   string
	env      func(name string) string
	out, log io.Writer
}

// run serves until ctx ends.
func run(ctx context.Context, s settings) error {
	schemes, err := accepted(s.env)
	if err != nil {
		return err
	}
	store, closeStore, err := openStore(s.env("REDIS_URL"))
	if err != nil {
		return err
	}
	defer closeStore()
	log := logrus.New()
	log.SetOutput(s.log)
	receiver, err := verify.Handler(printer(s.out), verify.Config{Schemes: schemes, Store: store, Logger: log})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: receiver, ReadTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// What is being worked on is finished, so that nobody sends it again.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), verify.DefaultLease)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// accepted lists the schemes for which there are keys. A key that cannot be used
// is an error; a scheme without any is not accepted.
func accepted(env func(name string) string) (schemes []verify.Scheme, err error) {
	if value := env("RECEIVER_KEY"); value != "" {
		keys, err := signature.ParseKeys(value)
		if err != nil {
			return nil, fmt.Errorf("read RECEIVER_KEY: %w", err)
		}
		schemes = append(schemes, verify.StandardWebhooks(keys))
	}
	current, next := env("QSTASH_CURRENT_SIGNING_KEY"), env("QSTASH_NEXT_SIGNING_KEY")
	if current != "" || next != "" {
		keys, err := qstash.ParseKeys(current, next, qstash.Production)
		if err != nil {
			return nil, fmt.Errorf("read QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY: %w", err)
		}
		schemes = append(schemes, verify.QStash(verify.QStashConfig{Keys: keys, URL: env("RECEIVER_URL")}))
	}
	return schemes, nil
}

// openStore remembers messages in Redis, or in memory when there is none.
func openStore(address string) (store verify.Store, closeStore func(), err error) {
	if address == "" {
		return verify.NewMemory(verify.MemoryConfig{}), func() {}, nil
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, errors.New("REDIS_URL is no address of a Redis")
	}
	client := redis.NewClient(options)
	store, err = redisstore.New(redisstore.Config{Client: client})
	return store, func() { _ = client.Close() }, err
}

// printer is the receiver's own work. Whatever it needs to know about signatures
// stands in the context.
func printer(out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "cannot read", http.StatusInternalServerError)
			return
		}
		facts, _ := verify.FromContext(r.Context())
		fmt.Fprintf(out, "%s %s %s\n", facts.Scheme, facts.ID, body)
		w.WriteHeader(http.StatusNoContent)
	})
}

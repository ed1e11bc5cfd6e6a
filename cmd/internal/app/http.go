package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The servers of an App, as Address names them.
const (
	ServerAPI     = "api"
	ServerMetrics = "metrics"
)

// freePortTries is how many ports are tried, the configured one included, when
// the next free one will do.
const freePortTries = 20

// httpServer is one listener with its handler.
type httpServer struct {
	serverParams
	server *http.Server
	// ports is how many ports to try, from the configured one on; 0 means one.
	ports int
	// drain tells the handler that the end is near; nil tells nobody.
	drain func()
	// bound is the address that was listened on, once started.
	bound net.Addr
}

// serverParams are what a server is made of.
type serverParams struct {
	name, address string
	handler       http.Handler
	// stopTimeout is what open requests get at the end.
	stopTimeout time.Duration
}

// newHTTPServer makes a server with the limits that keep a slow client from
// holding it: headers within ten seconds, and no open-ended idling. Bodies and
// replies are not limited in time here, because callers may wait for outcomes.
func newHTTPServer(p serverParams) *httpServer {
	return &httpServer{serverParams: p, server: &http.Server{
		Handler: p.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}}
}

// start listens and serves; a server that ends by itself sends its error to failed.
func (s *httpServer) start(failed chan<- error) error {
	l, err := s.listen()
	if err != nil {
		return fmt.Errorf("listen for %s: %w; set %s.listen to an address that is free", s.name, err, s.section())
	}
	s.bound = l.Addr()
	go func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s: %w", s.name, err)
		}
	}()
	return nil
}

// section names the part of the settings that has the server's address.
func (s *httpServer) section() string {
	if s.name == ServerTasks {
		return "qstash"
	}
	return s.name
}

// listen takes the configured port, or one of the next when it may.
func (s *httpServer) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", s.address)
	host, text, splitErr := net.SplitHostPort(s.address)
	port, portErr := strconv.Atoi(text)
	if splitErr != nil || portErr != nil || port == 0 {
		return l, err
	}
	for next := port + 1; next < port+s.ports && errors.Is(err, syscall.EADDRINUSE); next++ {
		l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(next)))
	}
	return l, err
}

func (s *httpServer) stop(ctx context.Context) error {
	if s.drain != nil {
		s.drain()
	}
	ctx, cancel := context.WithTimeout(ctx, s.stopTimeout)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		// Who is still there was given the time that the operator chose.
		return s.server.Close()
	}
	return nil
}

// checks are what readiness asks, by name.
func (a *App) checks() map[string]func(context.Context) error {
	checks := map[string]func(context.Context) error{}
	if a.store != nil {
		checks["redis"] = a.store.Ping
	}
	if a.worker != nil {
		checks["worker"] = func(context.Context) error { return a.worker.Ready() }
	}
	if a.answerer != nil {
		checks["control"] = func(context.Context) error { return a.answerer.Ready() }
	}
	return checks
}

// composeMetrics adds the listener for workers, which have no API.
func (a *App) composeMetrics() error {
	address := a.params.Config.Metrics.Listen
	if address == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", a.ready)
	a.servers = append(a.servers, newHTTPServer(serverParams{
		name: ServerMetrics, address: address, handler: mux, stopTimeout: a.params.Config.API.ShutdownTimeout,
	}))
	return nil
}

// ready answers 204, or 503 with the names of what is not.
func (a *App) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	for name, check := range a.checks() {
		if err := check(ctx); err != nil {
			http.Error(w, name+" is not ready", http.StatusServiceUnavailable)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// Address returns where a server listens (ServerAPI, ServerMetrics); "" when it
// was not started.
func (a *App) Address(name string) string {
	for _, s := range a.servers {
		if s.name == name && s.bound != nil {
			return s.bound.String()
		}
	}
	return ""
}

package webhook_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gantry-hooks/gantry/webhook"
)

// deliveries is how many a test makes; the short tests are content with fewer.
func deliveries() int {
	if testing.Short() {
		return 1_000
	}
	return 10_000
}

// inParallel makes n deliveries from 20 goroutines and fails on any that failed.
func inParallel(t *testing.T, d *webhook.Deliverer, url string, n int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() {
			for left.Add(-1) >= 0 {
				if result := d.Deliver(t.Context(), delivery(url, nil)); !result.Delivered {
					t.Errorf("charged an attempt: %+v", result)
					return
				}
			}
		})
	}
	workers.Wait()
}

// D15: 20 in parallel need 20 connections and a few, not one for each delivery.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	var opened, requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "a short reply, read for the sake of its connection")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	n := deliveries()
	inParallel(t, newDeliverer(t, nil), server.URL, n)
	if got := requests.Load(); got != int64(n) {
		t.Errorf("receiver saw %d requests, want %d", got, n)
	}
	if got := opened.Load(); got > 30 {
		t.Errorf("%d connections for 20 in parallel", got)
	}
}

// D15: a server that closes kept connections at random, before or after it has
// read the next request, costs no attempt.
func TestStaleConnectionsChargeNothing(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	url := serveRaw(t, func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for first := true; ; first = false {
			if !first && rand.IntN(20) == 0 { // as if the idle time had run out
				return
			}
			if !takeRequest(reader) {
				return
			}
			if !first && rand.IntN(20) == 0 {
				return
			}
			served.Add(1)
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return
			}
		}
	})
	n := deliveries()
	inParallel(t, newDeliverer(t, nil), url, n)
	if got := served.Load(); got != int64(n) {
		t.Errorf("served %d requests, want %d", got, n)
	}
}

package webhook_test

import (
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// Over TLS the same requests go out by HTTP/2, and its faults have the same classes.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	seen := make(chan []string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		seen <- []string{r.Proto, r.RequestURI, r.Header.Get("X-Api-Key"), r.Header.Get("Gantry-Delivery-Id"), string(body)}
		w.WriteHeader(http.StatusAccepted)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client, err := egress.New(egress.Config{Policy: egress.Trusted(), RootCAs: roots})
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(client.Close)
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Callers = client })
	del := delivery(server.URL+"/a%2Fb?q=1#z", nil)
	if result := d.Deliver(t.Context(), del); !result.Delivered || result.Status != http.StatusAccepted {
		t.Fatalf("result: %+v", result)
	}
	want := []string{"HTTP/2.0", "/a%2Fb?q=1", "Bearer " + secretHeader, "msg_1", string(del.Event)}
	if diff := cmp.Diff(want, <-seen); diff != "" {
		t.Fatalf("request differs (-want +got):\n%s", diff)
	}
	if result := d.Deliver(t.Context(), delivery(server.URL+"/abort", nil)); result.Class != tasks.ClassReset {
		t.Fatalf("aborted stream: %+v", result)
	}
	strict := newDeliverer(t, nil)
	if result := strict.Deliver(t.Context(), delivery(server.URL, nil)); result.Class != tasks.ClassTLS {
		t.Fatalf("unknown authority: %+v", result)
	}
}

package webhook_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// BenchmarkDeliver sends 1 KiB payloads over loopback from 50 goroutines; the
// receiver shares the processors.
func BenchmarkDeliver(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(server.Close)
	event := json.RawMessage(`{"content":"` + strings.Repeat("x", 1000) + `"}`)
	for name, edit := range map[string]func(*webhook.Delivery){
		"plain":  func(del *webhook.Delivery) { del.Hook.Webhook.Headers = nil },
		"header": func(*webhook.Delivery) {},
		"signed": func(del *webhook.Delivery) { del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"} },
	} {
		b.Run(name, func(b *testing.B) {
			d := newDeliverer(b, nil)
			del := delivery(server.URL+"/hook", nil)
			del.Event, del.Sequence, del.Token = event, 17, 3
			edit(&del)
			b.ReportAllocs()
			b.SetParallelism(25)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if result := d.Deliver(b.Context(), del); !result.Delivered {
						b.Errorf("attempt failed: %s", result.Message)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkDirect is what net/http costs by itself: the same requests without
// anything of Gantry's, as the bound that BenchmarkDeliver is held against.
func BenchmarkDirect(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	body := `{"content":"` + strings.Repeat("x", 1000) + `"}`
	b.ReportAllocs()
	b.SetParallelism(25)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+"/hook", strings.NewReader(body))
			if err != nil {
				b.Errorf("new request: %v", err)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				b.Errorf("send: %v", err)
				return
			}
			_ = resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	official "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
)

// TestQStashDev publishes with the official client to the process, and has the
// official receiver check what comes, twice because of a fault.
func TestQStashDev(t *testing.T) {
	refused := make(chan error, 10)
	var receiver *httptest.Server
	receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upstash-Retried") == "0" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		refused <- official.NewReceiver(qstash.DevCurrentKey, qstash.DevNextKey).Verify(official.VerifyOptions{
			Signature: r.Header.Get("Upstash-Signature"), Url: receiver.URL + "/hook?secret=1", Body: "",
		})
	}))
	defer receiver.Close()
	dev := launch(t, nil, "qstash", "dev", "--listen", "127.0.0.1:0", "--fast", "1000000", "--fault", "duplicate=2")
	dev.log.await(t, "Ctrl-C", 1)
	contains(t, dev.log.String(), "QSTASH_TOKEN="+qstash.DevToken, "QSTASH_CURRENT_SIGNING_KEY="+qstash.DevCurrentKey,
		"QSTASH_NEXT_SIGNING_KEY="+qstash.DevNextKey, "public development keys", "QSTASH_DEV_PORT=", "Faults: duplicate=2")
	_, address, _ := strings.Cut(dev.log.String(), "QSTASH_URL=")
	address, _, _ = strings.Cut(address, "\n")

	client := official.NewClientWith(official.Options{Url: address, Token: qstash.DevToken})
	accepted, err := client.Enqueue(official.EnqueueOptions{Queue: "q", PublishOptions: official.PublishOptions{Url: receiver.URL + "/hook?secret=1"}})
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	for range 2 {
		if err := <-refused; err != nil {
			t.Errorf("the receiver refuses: %v", err)
		}
	}
	dev.log.await(t, "delivered", 1)
	contains(t, dev.log.String(), "500  POST "+receiver.URL+"/hook?…  "+accepted.MessageId+"  retry in 12.182s  queue q",
		"200  POST "+receiver.URL+"/hook?…  "+accepted.MessageId+"  delivered  retried 1  queue q  fault duplicate")
	if strings.Contains(dev.log.String(), "secret") {
		t.Errorf("the query of the URL is shown")
	}
	if err := dev.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("interrupt: %v", err)
	}
	if err := dev.wait(t); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestQStashDevRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"open":            {[]string{"--listen", "0.0.0.0:0"}, "listens on this machine only"},
		"open by default": {[]string{"--listen", ":0"}, "listens on this machine only"},
		"public token":    {[]string{"--listen", ":0", "--token", qstash.DevToken}, "listens on this machine only"},
		"address":         {[]string{"--listen", "here"}, "host:port"},
		"fault":           {[]string{"--fault", "odd"}, "unknown kind \"odd\""},
		"times":           {[]string{"--fault", "412=0"}, "kind=times"},
		"fast":            {[]string{"--fast", "0"}, "not above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, nil, append([]string{"qstash", "dev"}, test.args...)...)
			if got.code != exitUsage || got.out != "" {
				t.Errorf("exit code %d, want %d; output %q", got.code, exitUsage, got.out)
			}
			contains(t, got.err, test.want)
		})
	}
}

// TestQStashDevAddressIsTaken fails with a hint.
func TestQStashDevAddressIsTaken(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	got := invoke(t, nil, "qstash", "dev", "--listen", strings.TrimPrefix(taken.URL, "http://"))
	if got.code != exitFailure {
		t.Errorf("exit code %d, want %d", got.code, exitFailure)
	}
	contains(t, got.err, "in use", "--listen")
}

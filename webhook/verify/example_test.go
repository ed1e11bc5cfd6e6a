package verify_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

// billing is a handler that has nothing to do with signatures.
var billing = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	facts, _ := verify.FromContext(r.Context())
	fmt.Printf("%s %s: %s\n", facts.Scheme, facts.ID, body)
})

func ExampleStandardWebhooks() {
	keys, err := signature.ParseKeys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") // from the environment, several during a rotation
	if err != nil {
		panic(err)
	}
	receiver, err := verify.Handler(billing, verify.Config{
		Schemes: []verify.Scheme{verify.StandardWebhooks(keys)},
		Store:   verify.NewMemory(verify.MemoryConfig{}),
	})
	if err != nil {
		panic(err)
	}
	signed := keys.Sign("msg_1", time.Now(), []byte(`{"n":1}`))
	for range 2 {
		request := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(`{"n":1}`))
		request.Header.Set("webhook-id", signed.ID)
		request.Header.Set("webhook-timestamp", signed.Timestamp)
		request.Header.Set("webhook-signature", signed.Signature)
		reply := httptest.NewRecorder()
		receiver.ServeHTTP(reply, request)
		fmt.Println(reply.Code)
	}
	// Output:
	// standard msg_1: {"n":1}
	// 200
	// 200
}

func ExampleBodySignature() {
	keys, err := signature.ParseKeys("Jefe")
	if err != nil {
		panic(err)
	}
	receiver, err := verify.Handler(billing, verify.Config{Schemes: []verify.Scheme{verify.BodySignature(keys)}})
	if err != nil {
		panic(err)
	}
	for _, body := range []string{"what do ya want for nothing?", "everything"} {
		request := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
		request.Header.Set("X-Webhook-Signature", "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
		reply := httptest.NewRecorder()
		receiver.ServeHTTP(reply, request)
		fmt.Println(reply.Code)
	}
	// Output:
	// body : what do ya want for nothing?
	// 200
	// 401
}

func ExampleQStash() {
	keys, err := qstash.ParseKeys("sig_current", "sig_next", qstash.Production) // from the environment
	if err != nil {
		panic(err)
	}
	receiver, err := verify.Handler(billing, verify.Config{
		Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: keys, URL: "https://app.example/hook"})},
	})
	if err != nil {
		panic(err)
	}
	request := httptest.NewRequest(http.MethodPost, "https://app.example/hook", strings.NewReader(`{"n":1}`))
	request.Header.Set("Upstash-Signature", "a.forged.token")
	reply := httptest.NewRecorder()
	receiver.ServeHTTP(reply, request)
	fmt.Println(reply.Code, strings.TrimSpace(reply.Body.String()))
	// Output:
	// 401 unauthorized
}

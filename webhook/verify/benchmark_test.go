package verify_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/webhook/verify"
)

// BenchmarkVerify is about a body of 10 KiB in each scheme.
func BenchmarkVerify(b *testing.B) {
	body := strings.Repeat("x", 10<<10)
	v, err := verify.New(all(b))
	if err != nil {
		b.Fatalf("new verifier: %v", err)
	}
	for name, header := range map[verify.Name]http.Header{
		verify.NameStandard: standard(b, firstKey, "msg_1", body), verify.NameBody: plain(b, firstKey, "msg_1", body),
		verify.NameQStash: message{key: currentKey, url: origin + "/a", id: "m", body: body}.header(b),
	} {
		b.Run(string(name), func(b *testing.B) {
			r, raw := post("/a", "", header), []byte(body)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(r, raw); err != nil {
					b.Fatalf("verify: %v", err)
				}
			}
		})
	}
}

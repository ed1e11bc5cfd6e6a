package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// deadAPI is an API with more dead letters than one page holds, listed in
// another order than that of their events.
func deadAPI(t *testing.T, letters int) (env map[string]string, replayed *[][]string) {
	t.Helper()
	replayed = &[][]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var body struct{ IDs []string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Errorf("read body: %v", err)
			}
			*replayed = append(*replayed, body.IDs)
			_ = json.NewEncoder(w).Encode(map[string]any{"replayed": len(body.IDs), "notReplayed": []any{}}) // the test reads the rest
			return
		}
		if hook := r.URL.Query().Get("hook"); hook != "h" {
			t.Errorf("asked for hook %q", hook)
		}
		from, size := 0, 0
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from) // absent on the first page
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &size)
		page := map[string]any{"deadLetters": []any{}, "total": letters}
		var list []any
		for n := from; n < min(from+size, letters); n++ {
			list = append(list, map[string]any{"id": fmt.Sprintf("d%d", n), "operationId": "op", "sequence": letters - n})
		}
		page["deadLetters"] = list
		if from+size < letters {
			page["next"] = fmt.Sprint(from + size)
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(server.Close)
	return map[string]string{varAPI: server.URL}, replayed
}

func TestDeadListReadsEveryPage(t *testing.T) {
	env, _ := deadAPI(t, 450)
	got := invoke(t, env, "dead", "list", "--hook", "h", "--json")
	if n := strings.Count(got.out, "\n"); got.code != exitOK || n != 450 {
		t.Fatalf("exit code %d, %d lines: %s", got.code, n, got.err)
	}
	got = invoke(t, env, "dead", "list", "--hook", "h", "--limit", "201")
	if n := strings.Count(got.out, "\n"); n != 202 || !strings.Contains(got.out, "d200") {
		t.Fatalf("the table has %d lines", n)
	}
}

func TestDeadReplayKeepsTheOrderOfEvents(t *testing.T) {
	env, replayed := deadAPI(t, 450)
	got := invoke(t, env, "dead", "replay", "--hook", "h")
	if got.code != exitOK || !strings.Contains(got.err, "put 450 letters back") {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	var want []string
	for n := 449; n >= 0; n-- {
		want = append(want, fmt.Sprintf("d%d", n))
	}
	if all := slices.Concat(*replayed...); !slices.Equal(all, want) || len(*replayed) != 5 {
		t.Fatalf("replayed in %d calls: %v", len(*replayed), all)
	}
}

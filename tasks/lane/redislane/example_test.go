package redislane_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// A client in any language appends events with one EVAL: the script is in
// docs/wire.md, and everything else is a hash and a few strings.
func ExampleAppendScript() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	hash := func(n int, parts string) string {
		sum := sha256.Sum256([]byte(parts))
		return base64.RawURLEncoding.EncodeToString(sum[:n])
	}
	const (
		operation = "run-42"
		day       = 24 * 60 * 60 * 1000
		event     = `{"operationId":"run-42","stepIndex":1}`
		document  = `{"v":1,"id":"evt-1","operationId":"run-42","type":"afterStep","event":` + event + `,"hooks":[],"enqueuedAt":1}`
	)
	args := []any{
		day, 2 * day,
		hash(16, operation), operation, 1,
		"evt-1", hash(9, "afterStep\n"+event), 0, "", "", document,
	}
	for range 2 {
		reply, err := client.Eval(context.Background(), redislane.AppendScript(), []string{"gantry:{0}:"}, args...).Result()
		fmt.Println(reply, err)
	}

	store, err := redislane.Open(context.Background(), redislane.Config{Client: client, Blocking: client, Embedded: true})
	if err != nil {
		panic(err)
	}
	claims, err := store.Claim(context.Background(), 0, 1, 10)
	fmt.Println(len(claims), claims[0].OperationID, string(claims[0].Entries[0].Doc) == document, err)
	// Output:
	// [[ok [1 0]]] <nil>
	// [[ok [1 1]]] <nil>
	// 1 run-42 true <nil>
}

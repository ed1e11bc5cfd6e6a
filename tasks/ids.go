package tasks

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// MaxIDBytes bounds the ids of operations and tasks, in bytes of UTF-8.
const MaxIDBytes = 512

// CheckOperationID reports why id cannot name an operation: it must be 1 to
// MaxIDBytes bytes of valid UTF-8 without control characters. An error is an
// *InvalidError with the code InvalidOperationID.
func CheckOperationID(id string) error {
	return checkID(id, "operationId", InvalidOperationID)
}

// CheckTaskID reports why id cannot be the id of a task or event, by the rule
// of CheckOperationID; the code is InvalidTaskID.
func CheckTaskID(id string) error { return checkID(id, "id", InvalidTaskID) }

func checkID(id, path string, code Reason) error {
	fault := ""
	switch {
	case id == "":
		fault = "id is empty"
	case len(id) > MaxIDBytes:
		fault = "id is longer than 512 bytes"
	case !utf8.ValidString(id):
		fault = "id is not valid UTF-8"
	default:
		for _, r := range id {
			if unicode.IsControl(r) {
				fault = "id holds a control character"
				break
			}
		}
	}
	if fault == "" {
		return nil
	}
	return &InvalidError{
		Code: code, Path: path, Message: fault,
		Fix: "use 1 to 512 bytes of UTF-8 without control characters",
	}
}

var idSource = struct {
	sync.Mutex
	entropy *ulid.MonotonicEntropy
}{entropy: ulid.Monotonic(rand.Reader, 0)}

// NewID returns a fresh ULID. Ids of one process that are made within the same
// millisecond ascend.
func NewID() string {
	idSource.Lock()
	defer idSource.Unlock()
	for {
		id, err := ulid.New(ulid.Timestamp(time.Now()), idSource.entropy)
		if err == nil {
			return id.String()
		}
		// The random part of this millisecond ran over; the source starts anew.
		idSource.entropy = ulid.Monotonic(rand.Reader, 0)
	}
}

// ContentDigest fingerprints what an idempotency key stands for: hook type and
// event bytes. Equal digests under one id mean a duplicate, different ones a
// reused id (docs/wire.md). It is 12 characters of base64url.
func ContentDigest(t HookType, event []byte) string {
	h := sha256.New()
	h.Write([]byte(t))
	h.Write([]byte{'\n'})
	h.Write(event)
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:9])
}

// OperationHash returns the name of an operation in Redis keys: 22 characters
// of base64url, so that no id can collide with another key or break a hash tag.
func OperationHash(operationID string) string {
	sum := sha256.Sum256([]byte(operationID))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// ShardOf places an operation, or whatever else id names, in one of so many shards:
// the same on every machine for the same count (docs/wire.md).
func ShardOf(id string, shards int) int {
	if shards <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte("shard\x00" + id))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(shards))
}

// DeliveryID returns the id of one hook's delivery of one task: the same for
// each attempt, different for two hooks with the same id. The parts are hashed
// with their lengths, so that they cannot run together.
func DeliveryID(namespace, operationID, taskID, hookKey string) string {
	buf := make([]byte, 0, 256)
	for _, part := range [...]string{namespace, operationID, taskID, hookKey} {
		buf = appendPart(buf, part)
	}
	sum := sha256.Sum256(buf)
	return "msg_" + base64.RawURLEncoding.EncodeToString(sum[:18])
}

func appendPart(dst []byte, part string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}

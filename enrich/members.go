package enrich

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

// The keys that the payload rules name (docs/behaviour.md §10).
const (
	keyHookID     = "hookId"
	keyHookType   = "hookType"
	keyUserID     = "userId"
	keyUserEmail  = "userEmail"
	keyFinalState = "finalState"
	keyMock       = "mock"
)

// sortedMembers returns the members of an object sorted by key, the last of
// duplicate keys only. All functions below expect and keep this form.
func sortedMembers(raw json.RawMessage) ([]tasks.Member, error) {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return nil, err
	}
	return normalise(members), nil
}

func compareKeys(a, b tasks.Member) int { return strings.Compare(a.Key, b.Key) }

// normalise sorts members in place and keeps the last of each key.
func normalise(members []tasks.Member) []tasks.Member {
	ordered := true
	for i := 1; i < len(members); i++ {
		if members[i-1].Key >= members[i].Key {
			ordered = false
			break
		}
	}
	if ordered {
		return members
	}
	slices.SortStableFunc(members, compareKeys)
	kept := members[:0]
	for i, m := range members {
		if i+1 < len(members) && members[i+1].Key == m.Key {
			continue
		}
		kept = append(kept, m)
	}
	return kept
}

func search(members []tasks.Member, key string) (int, bool) {
	return slices.BinarySearchFunc(members, key, func(m tasks.Member, key string) int {
		return strings.Compare(m.Key, key)
	})
}

// find returns the value of key; nil means that the key is absent.
func find(members []tasks.Member, key string) json.RawMessage {
	if i, ok := search(members, key); ok {
		return members[i].Value
	}
	return nil
}

func set(members []tasks.Member, key string, value json.RawMessage) []tasks.Member {
	i, ok := search(members, key)
	if ok {
		members[i].Value = value
		return members
	}
	return slices.Insert(members, i, tasks.Member{Key: key, Value: value})
}

func remove(members []tasks.Member, key string) []tasks.Member {
	if i, ok := search(members, key); ok {
		return slices.Delete(members, i, i+1)
	}
	return members
}

// project keeps the named fields that event has; event itself stays as it is.
func project(event []tasks.Member, fields []string) []tasks.Member {
	// Room for what every payload may gain: hookId, hookType, userEmail.
	kept := make([]tasks.Member, 0, len(fields)+3)
	for _, field := range fields {
		if i, ok := search(event, field); ok {
			kept = append(kept, event[i])
		}
	}
	return normalise(kept)
}

func addHook(members []tasks.Member, id string, hookType tasks.HookType) []tasks.Member {
	members = set(members, keyHookID, tasks.AppendString(nil, id))
	return set(members, keyHookType, tasks.AppendString(nil, string(hookType)))
}

// merge lays the members of body, a raw object or nil, over members.
func merge(members []tasks.Member, body json.RawMessage) ([]tasks.Member, error) {
	if body == nil {
		return members, nil
	}
	over, err := tasks.SplitObject(body)
	if err != nil {
		return nil, err
	}
	return normalise(append(members, over...)), nil
}

// encode writes members as one object into a buffer of its own.
func encode(members []tasks.Member) []byte {
	size := len("{}")
	for _, m := range members {
		size += len(`"":,`) + len(m.Key) + len(m.Value)
	}
	return tasks.AppendObject(make([]byte, 0, size), members)
}

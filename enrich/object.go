package enrich

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/gantry-hooks/gantry/tasks"
)

// The top-level keys that the payload rules name (docs/behaviour.md §10).
const (
	keyHookID     = "hookId"
	keyHookType   = "hookType"
	keyUserID     = "userId"
	keyUserEmail  = "userEmail"
	keyFinalState = "finalState"
	keyMock       = "mock"
	keyResult     = "result"
)

// object is a JSON object under construction: order holds the positions of the
// members in force, sorted by key and without duplicates. Moving positions
// instead of members keeps the garbage collector out of the sorting.
type object struct {
	members []tasks.Member
	order   []int32
}

// objects lends out objects for the room in their order.
var objects = sync.Pool{New: func() any { return new(object) }}

func borrowObject() *object {
	o, _ := objects.Get().(*object)
	return o
}

// giveBack ends the use of o, and lets go of the event that it points into.
func (o *object) giveBack() {
	o.members = nil
	objects.Put(o)
}

// load makes o the object raw, with the last of duplicate keys.
func (o *object) load(raw json.RawMessage) error {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return err
	}
	o.members, o.order = members, o.order[:0]
	for i := range members {
		o.order = append(o.order, int32(i))
	}
	o.normalise()
	return nil
}

// normalise sorts order and drops all but the last position of a key.
func (o *object) normalise() {
	for i := 1; ; i++ {
		if i >= len(o.order) {
			return
		}
		if o.key(i-1) >= o.key(i) {
			break
		}
	}
	members := o.members
	slices.SortFunc(o.order, func(a, b int32) int {
		if c := strings.Compare(members[a].Key, members[b].Key); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	kept := o.order[:0]
	for i, position := range o.order {
		if i+1 < len(o.order) && o.key(i+1) == o.key(i) {
			continue
		}
		kept = append(kept, position)
	}
	o.order = kept
}

func (o *object) key(i int) string { return o.members[o.order[i]].Key }

func (o *object) search(key string) (int, bool) { return o.searchIn(o.order, key) }

// searchIn finds key in sorted positions.
func (o *object) searchIn(order []int32, key string) (int, bool) {
	return slices.BinarySearchFunc(order, key, func(position int32, key string) int {
		return strings.Compare(o.members[position].Key, key)
	})
}

// find returns the value of key; nil means that the key is absent.
func (o *object) find(key string) json.RawMessage {
	if i, ok := o.search(key); ok {
		return o.members[o.order[i]].Value
	}
	return nil
}

func (o *object) set(key string, value json.RawMessage) {
	i, ok := o.search(key)
	if ok {
		o.members[o.order[i]].Value = value
		return
	}
	o.order = slices.Insert(o.order, i, int32(len(o.members)))
	o.members = append(o.members, tasks.Member{Key: key, Value: value})
}

func (o *object) remove(key string) {
	if i, ok := o.search(key); ok {
		o.order = slices.Delete(o.order, i, i+1)
	}
}

// project keeps the named fields that o has.
func (o *object) project(fields []string) {
	all := len(o.order)
	for _, field := range fields {
		if i, ok := o.searchIn(o.order[:all], field); ok {
			o.order = append(o.order, o.order[i])
		}
	}
	o.order = slices.Delete(o.order, 0, all)
	o.normalise()
}

// quotedTypes holds the JSON of each hook type, which every payload has.
var quotedTypes = func() map[tasks.HookType]json.RawMessage {
	quoted := map[tasks.HookType]json.RawMessage{}
	for _, t := range tasks.HookTypes() {
		quoted[t] = tasks.AppendString(nil, string(t))
	}
	return quoted
}()

// addHook names the hook, over what the event says of it.
func (o *object) addHook(id string, hookType tasks.HookType) {
	o.set(keyHookID, tasks.AppendString(nil, id))
	quoted, ok := quotedTypes[hookType]
	if !ok {
		quoted = tasks.AppendString(nil, string(hookType))
	}
	o.set(keyHookType, quoted)
}

// merge lays the members of body, a raw object or nil, over o.
func (o *object) merge(body json.RawMessage) error {
	if body == nil {
		return nil
	}
	over, err := tasks.SplitObject(body)
	if err != nil {
		return err
	}
	for i := range over {
		o.order = append(o.order, int32(len(o.members)+i))
	}
	o.members = append(o.members, over...)
	o.normalise()
	return nil
}

// encode writes o into a buffer of its own.
func (o *object) encode() []byte {
	size := len("{}")
	for i, position := range o.order {
		size += len(o.key(i)) + len(`"":,`) + len(o.members[position].Value)
	}
	dst := append(make([]byte, 0, size), '{')
	for i, position := range o.order {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = tasks.AppendString(dst, o.key(i))
		dst = append(dst, ':')
		dst = append(dst, o.members[position].Value...)
	}
	return append(dst, '}')
}

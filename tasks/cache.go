package tasks

import "sync"

// cache is a bounded concurrent map in two generations: entries that are not
// asked for while a generation fills up are forgotten with it. Reads share a
// lock and write nothing, which keeps a hit cheap.
type cache[K comparable, V any] struct {
	mu     sync.RWMutex
	young  map[K]cached[V]
	old    map[K]cached[V]
	weight int
	limit  int
}

type cached[V any] struct {
	value  V
	weight int
}

// newCache returns a cache whose two generations hold at most limit of weight
// each.
func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{young: map[K]cached[V]{}, limit: limit}
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.RLock()
	e, ok := c.young[key]
	aged := false
	if !ok {
		e, aged = c.old[key]
	}
	c.mu.RUnlock()
	if aged {
		c.put(key, e.value, e.weight)
	}
	return e.value, ok || aged
}

// getBytes is get with a key that is not a string yet and need not become one.
func getBytes[V any](c *cache[string, V], key []byte) (V, bool) {
	c.mu.RLock()
	e, ok := c.young[string(key)]
	c.mu.RUnlock()
	if ok {
		return e.value, true
	}
	return c.get(string(key))
}

func (c *cache[K, V]) put(key K, value V, weight int) {
	if weight > c.limit/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young[key]; ok {
		return
	}
	if c.weight+weight > c.limit {
		c.old, c.young, c.weight = c.young, map[K]cached[V]{}, 0
	}
	c.young[key] = cached[V]{value: value, weight: weight}
	c.weight += weight
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.weight = map[K]cached[V]{}, nil, 0
}

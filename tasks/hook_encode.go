package tasks

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// EncodeHooks returns the stored form of hooks: a JSON array of those with a
// webhook, in their order, without handlers and without environment hooks.
// Equal hooks give equal bytes. An error is an *InvalidError for a body that is
// no JSON object or options that cannot be written.
func EncodeHooks(hooks []Hook) (json.RawMessage, error) {
	dst := make([]byte, 0, 256)
	dst = append(dst, '[')
	for i := range hooks {
		h := &hooks[i]
		if h.Webhook == nil || h.Environment() {
			continue
		}
		if err := validateHook(h, "hooks["+strconv.Itoa(i)+"]"); err != nil {
			return nil, err
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendHook(dst, h); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendHook(dst []byte, h *Hook) ([]byte, error) {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, h.ID)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, string(h.Type))
	if h.Matcher != nil {
		dst = append(dst, `,"matcher":`...)
		dst = AppendString(dst, *h.Matcher)
	}
	dst = append(dst, `,"webhook":`...)
	dst = appendWebhook(dst, h.Webhook)
	if h.Options != nil {
		options, err := json.Marshal(h.Options)
		if err != nil {
			return nil, &InvalidError{Code: InvalidOptions, Path: "gantry", Message: "options cannot be written", Fix: retryFix}
		}
		dst = append(dst, `,"gantry":`...)
		dst = append(dst, options...)
	}
	return append(dst, '}'), nil
}

func appendWebhook(dst []byte, w *Webhook) []byte {
	dst = append(dst, `{"url":`...)
	dst = AppendString(dst, w.URL)
	for _, f := range [...]struct{ key, value string }{
		{"delivery", string(w.Delivery)},
		{"fallback", string(w.Fallback)},
		{"onError", string(w.OnError)},
		{"responseHandling", string(w.ResponseHandling)},
	} {
		if f.value != "" {
			dst = AppendString(appendKey(dst, f.key), f.value)
		}
	}
	if w.Timeout != 0 {
		dst = strconv.AppendFloat(appendKey(dst, "timeout"), w.Timeout, 'f', -1, 64)
	}
	if w.Headers != nil {
		dst = append(appendKey(dst, "headers"), '{')
		for i, name := range sortedKeys(w.Headers) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, name), ':')
			dst = AppendString(dst, w.Headers[name])
		}
		dst = append(dst, '}')
	}
	if w.AllowedEnvVars != nil {
		dst = appendStrings(appendKey(dst, "allowedEnvVars"), w.AllowedEnvVars)
	}
	if w.EventFields != nil {
		dst = appendStrings(appendKey(dst, "eventFields"), w.EventFields)
	}
	if w.Body != nil {
		dst = append(appendKey(dst, "body"), w.Body...)
	}
	return append(dst, '}')
}

// appendKey appends a key that needs no escaping and follows another member.
func appendKey(dst []byte, key string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	return append(dst, '"', ':')
}

func appendStrings(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, text)
	}
	return append(dst, ']')
}

// storedHooks holds parsed hook lists by their bytes: every task of an
// operation carries the same few lists.
var storedHooks = newCache[string, []Hook](16 << 20)

// StoredHooks parses a stored list as ParseHooks does in the mode ParseRestore,
// and remembers it. The result is shared: read it only. No bytes mean no hooks.
func StoredHooks(raw json.RawMessage) ([]Hook, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if hooks, ok := getBytes(storedHooks, raw); ok {
		return hooks, nil
	}
	key := string(raw)
	hooks, err := ParseHooks([]byte(key), ParseOptions{Mode: ParseRestore})
	if err != nil {
		return nil, err
	}
	storedHooks.put(key, hooks, 4*len(key)+64)
	return hooks, nil
}

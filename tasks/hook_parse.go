package tasks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ParseMode says where a list of hooks comes from, which decides its shape.
type ParseMode string

// The parse modes; the zero value means ParseRegister.
const (
	// ParseRegister reads hooks given by a caller: extra top-level keys are
	// dropped, and a handler may be named.
	ParseRegister ParseMode = "register"
	// ParseRestore reads hooks that were stored: a webhook is required, and extra
	// keys and handlers are refused.
	ParseRestore ParseMode = "restore"
)

// ParseOptions are the settings of ParseHooks; the zero value registers hooks
// without handlers.
type ParseOptions struct {
	Mode ParseMode
	// Handlers are the functions that a JSON "handler" may name; a name that is not
	// among them is refused.
	Handlers map[string]Handler
}

// ParseHooks reads a JSON array of hooks and checks it by the rules of
// docs/behaviour.md §2. Hooks with a reserved id are dropped unread. One invalid
// hook fails the whole list: the error is then an *InvalidError with the path
// of the field. Keys are case-sensitive and the last duplicate wins; null is
// not the same as absent and is refused.
func ParseHooks(raw []byte, opts ParseOptions) ([]Hook, error) {
	if err := checkJSON(raw, enclosed); err != nil {
		return nil, err
	}
	s := scanner{raw: raw}
	s.space()
	if s.peek() != '[' {
		return nil, &InvalidError{
			Code: InvalidHook, Path: "hooks", Message: "hooks are no JSON array", Fix: "send an array of hook objects",
		}
	}
	hooks := []Hook{}
	var failed error
	index := 0
	s.elements(func(value json.RawMessage) {
		if failed != nil {
			return
		}
		p := hookParser{opts: opts, path: "hooks[" + strconv.Itoa(index) + "]"}
		index++
		hook, err := p.parse(value)
		switch {
		case err != nil:
			failed = err
		case hook != nil:
			hooks = append(hooks, *hook)
		}
	})
	if failed != nil {
		return nil, failed
	}
	return hooks, nil
}

// hookParser reads one hook. Its errors carry paths below path.
type hookParser struct {
	opts ParseOptions
	path string
}

func (p *hookParser) refuse(code Reason, field, message, fix string) error {
	path := p.path
	if field != "" {
		path += "." + field
	}
	return &InvalidError{Code: code, Path: path, Message: message, Fix: fix}
}

// rawHook holds the last value of each known key; nil means absent.
type rawHook struct {
	id, hookType, matcher, handler, webhook, options json.RawMessage
	// unknown holds the other keys.
	unknown []string
}

func splitHook(value json.RawMessage) rawHook {
	var raw rawHook
	// The document was checked as a whole, so this cannot fail.
	_ = eachMember(value, func(quoted []byte, v json.RawMessage) {
		switch key := decodeKey(quoted); key {
		case "id":
			raw.id = v
		case "type":
			raw.hookType = v
		case "matcher":
			raw.matcher = v
		case "handler":
			raw.handler = v
		case "webhook":
			raw.webhook = v
		case "gantry":
			raw.options = v
		default:
			raw.unknown = append(raw.unknown, key)
		}
	})
	return raw
}

// parse returns nil without an error for a hook that is dropped.
func (p *hookParser) parse(value json.RawMessage) (*Hook, error) {
	if !isObject(value) {
		return nil, p.refuse(InvalidHook, "", "hook is no object", "send {id, type, webhook}")
	}
	raw := splitHook(value)
	if raw.id == nil || !isString(raw.id) {
		return nil, p.refuse(InvalidID, "id", "id is missing or no string", "give the hook a string id")
	}
	h := &Hook{ID: decodeString(raw.id)}
	if h.Environment() {
		return nil, nil
	}
	if err := p.parseNames(h, raw); err != nil {
		return nil, err
	}
	if err := p.parseActions(h, raw); err != nil {
		return nil, err
	}
	if raw.options != nil {
		options, err := p.parseOptions(raw.options)
		if err != nil {
			return nil, err
		}
		h.Options = options
	}
	return h, validateHook(h, p.path)
}

func (p *hookParser) parseNames(h *Hook, raw rawHook) error {
	if raw.hookType == nil || !isString(raw.hookType) {
		return p.refuse(UnknownType, "type", "type is missing or no string", typeFix)
	}
	h.Type = HookType(decodeString(raw.hookType))
	if p.opts.Mode == ParseRestore {
		if raw.unknown != nil {
			return p.refuse(UnknownField, raw.unknown[0], "key is unknown", "a stored hook has id, type, matcher, webhook and gantry only")
		}
		if raw.handler != nil {
			return p.refuse(UnknownField, "handler", "a stored hook has no handler", "remove the key")
		}
	}
	if raw.matcher == nil {
		return nil
	}
	if !isString(raw.matcher) {
		return p.refuse(InvalidMatcher, "matcher", "matcher is no string", "write one regular expression, or leave the key out")
	}
	matcher := decodeString(raw.matcher)
	h.Matcher = &matcher
	return nil
}

func (p *hookParser) parseActions(h *Hook, raw rawHook) error {
	if raw.handler != nil {
		if !isString(raw.handler) {
			return p.refuse(InvalidHandler, "handler", "handler is not callable", "name a handler, or leave the key out")
		}
		if h.Handler = p.opts.Handlers[decodeString(raw.handler)]; h.Handler == nil {
			return p.refuse(InvalidHandler, "handler", "handler is not known", "name one of the handlers of this process")
		}
	}
	if raw.webhook == nil {
		return nil
	}
	if !isObject(raw.webhook) {
		return p.refuse(InvalidWebhook, "webhook", "webhook is no object", "send {url}, or leave the key out")
	}
	w, err := p.parseWebhook(raw.webhook)
	h.Webhook = w
	return err
}

// parseWebhook reads the webhook's keys in their order; rules that concern
// several keys are validateHook's.
func (p *hookParser) parseWebhook(value json.RawMessage) (*Webhook, error) {
	last := map[string]json.RawMessage{}
	order := []string{}
	_ = eachMember(value, func(quoted []byte, v json.RawMessage) {
		key := decodeKey(quoted)
		if _, seen := last[key]; !seen {
			order = append(order, key)
		}
		last[key] = v
	})
	if _, ok := last["url"]; !ok {
		return nil, p.refuse(InvalidURL, "webhook.url", "url is missing", urlFix)
	}
	w := &Webhook{}
	for _, key := range order {
		read, ok := webhookFields[key]
		if !ok {
			return nil, p.refuse(UnknownField, "webhook."+key, "key is unknown", webhookKeysFix)
		}
		if fault := read(w, last[key]); fault != nil {
			return nil, p.refuse(fault.Code, "webhook."+key+fault.Path, fault.Message, fault.Fix)
		}
	}
	return w, nil
}

// webhookFields reads one value into a webhook; the path of a fault is relative
// to the key.
var webhookFields = map[string]func(*Webhook, json.RawMessage) *InvalidError{
	"url":              readURL,
	"timeout":          readTimeout,
	"delivery":         readDelivery,
	"fallback":         readFallback,
	"onError":          readOnError,
	"responseHandling": readResponseHandling,
	"allowedEnvVars":   readAllowedEnvVars,
	"headers":          readHeaders,
	"body":             readBody,
	"eventFields":      readEventFields,
}

const webhookKeysFix = "a webhook has url, timeout, delivery, fallback, onError, responseHandling, headers, allowedEnvVars, eventFields and body only"

func readURL(w *Webhook, v json.RawMessage) *InvalidError {
	if !isString(v) {
		return &InvalidError{Code: InvalidURL, Message: "url is no string", Fix: urlFix}
	}
	w.URL = decodeString(v)
	return nil
}

func readTimeout(w *Webhook, v json.RawMessage) *InvalidError {
	seconds, ok := number(v)
	if !ok || seconds == 0 {
		return &InvalidError{Code: InvalidTimeout, Message: "timeout is no number of seconds above 0", Fix: timeoutFix}
	}
	w.Timeout = seconds
	return nil
}

// number decodes a JSON number; one that overflows is infinite.
func number(v json.RawMessage) (float64, bool) {
	if !isNumber(v) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(string(v), 64)
	return f, true
}

func readDelivery(w *Webhook, v json.RawMessage) *InvalidError {
	return readChoice(v, &w.Delivery, InvalidDelivery, DeliverFetch, DeliverQStash)
}

func readFallback(w *Webhook, v json.RawMessage) *InvalidError {
	return readChoice(v, &w.Fallback, InvalidFallback, FallbackFetch, FallbackNone)
}

func readOnError(w *Webhook, v json.RawMessage) *InvalidError {
	return readChoice(v, &w.OnError, InvalidOnError, PolicyContinue, PolicyBlock)
}

func readResponseHandling(w *Webhook, v json.RawMessage) *InvalidError {
	return readChoice(v, &w.ResponseHandling, InvalidResponseHandling, HandleIgnore, HandleToolCall)
}

func readChoice[T ~string](v json.RawMessage, to *T, code Reason, choices ...T) *InvalidError {
	if isString(v) {
		*to = T(decodeString(v))
		for _, c := range choices {
			if *to == c {
				return nil
			}
		}
	}
	return badChoice(code, choices)
}

func badChoice[T ~string](code Reason, choices []T) *InvalidError {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = string(c)
	}
	return &InvalidError{Code: code, Message: "value is not known", Fix: "use " + strings.Join(names, " or ")}
}

func readAllowedEnvVars(w *Webhook, v json.RawMessage) (fault *InvalidError) {
	w.AllowedEnvVars, fault = readStrings(v, InvalidAllowedEnvVar)
	return fault
}

func readEventFields(w *Webhook, v json.RawMessage) (fault *InvalidError) {
	w.EventFields, fault = readStrings(v, InvalidEventFields)
	return fault
}

// readStrings reads an array of strings; the result is never nil, because an
// empty list is not an absent one.
func readStrings(v json.RawMessage, code Reason) ([]string, *InvalidError) {
	if !isArray(v) {
		return nil, &InvalidError{Code: code, Message: "value is no array", Fix: "send an array of strings"}
	}
	texts := []string{}
	var fault *InvalidError
	s := scanner{raw: v}
	index := 0
	s.elements(func(item json.RawMessage) {
		if !isString(item) && fault == nil {
			fault = &InvalidError{
				Code: code, Path: fmt.Sprintf("[%d]", index), Message: "item is no string", Fix: "send an array of strings",
			}
		}
		if fault == nil {
			texts = append(texts, decodeString(item))
		}
		index++
	})
	return texts, fault
}

func readHeaders(w *Webhook, v json.RawMessage) *InvalidError {
	if !isObject(v) {
		return &InvalidError{Code: InvalidHeaders, Message: "headers are no object", Fix: "send an object of strings"}
	}
	last := map[string]json.RawMessage{}
	_ = eachMember(v, func(quoted []byte, value json.RawMessage) { last[decodeKey(quoted)] = value })
	w.Headers = make(map[string]string, len(last))
	for _, name := range sortedKeys(last) {
		if !isString(last[name]) {
			return &InvalidError{
				Code: InvalidHeaders, Path: "." + name, Message: "header value is no string", Fix: "send an object of strings",
			}
		}
		w.Headers[name] = decodeString(last[name])
	}
	return nil
}

func readBody(w *Webhook, v json.RawMessage) *InvalidError {
	if !isObject(v) {
		return &InvalidError{Code: InvalidBody, Message: "body is no object", Fix: "send a JSON object, or leave the key out"}
	}
	w.Body = append(json.RawMessage(nil), v...)
	return nil
}

package main

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

const masked = "[redacted]"

// at changes one member of a JSON object and keeps every other byte; what is not
// of the expected shape stays as it is.
func at(raw json.RawMessage, key string, change func(json.RawMessage) json.RawMessage) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return raw
	}
	for i := range members {
		if members[i].Key == key {
			members[i].Value = change(members[i].Value)
		}
	}
	return tasks.AppendObject(nil, members)
}

// maskLetter hides what may be secret in the hooks of a dead letter: somebody
// may have written a token where a template belongs.
func maskLetter(raw json.RawMessage) json.RawMessage {
	return at(raw, "task", func(task json.RawMessage) json.RawMessage {
		return at(task, "hooks", maskHooks)
	})
}

func maskHooks(raw json.RawMessage) json.RawMessage {
	var hooks []json.RawMessage
	if json.Unmarshal(raw, &hooks) != nil {
		return raw
	}
	for i := range hooks {
		hooks[i] = at(hooks[i], "webhook", func(webhook json.RawMessage) json.RawMessage {
			webhook = at(webhook, "headers", maskHeaders)
			webhook = at(webhook, "body", maskBody)
			return at(webhook, "url", maskURL)
		})
	}
	out := []byte{'['}
	for i, hook := range hooks {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, hook...)
	}
	return append(out, ']')
}

// plainHeaders hold no secret whatever their value.
var plainHeaders = map[string]bool{"content-type": true, "accept": true, "user-agent": true}

func maskHeaders(raw json.RawMessage) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return raw
	}
	for i := range members {
		if !plainHeaders[strings.ToLower(members[i].Key)] {
			members[i].Value = change(members[i].Value, maskTemplate)
		}
	}
	return tasks.AppendObject(nil, members)
}

// change applies f to a JSON string; another value becomes masked.
func change(raw json.RawMessage, f func(string) string) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = ""
		f = func(string) string { return masked }
	}
	return tasks.AppendString(nil, f(text))
}

var (
	variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
	scheme   = regexp.MustCompile(`(?i)^(bearer|basic|token) *$`)
	secretly = regexp.MustCompile(`(?i)(token|secret|password|passwd|key|credential|auth)`)
)

// maskTemplate keeps variables and the word of an authorization scheme.
func maskTemplate(text string) string {
	var b strings.Builder
	literal := func(part string) {
		if part == "" || scheme.MatchString(part) {
			b.WriteString(part)
			return
		}
		b.WriteString(masked)
	}
	last := 0
	for _, span := range variable.FindAllStringIndex(text, -1) {
		literal(text[last:span[0]])
		b.WriteString(text[span[0]:span[1]])
		last = span[1]
	}
	literal(text[last:])
	return b.String()
}

// maskURL hides the query, where tokens are often put.
func maskURL(raw json.RawMessage) json.RawMessage {
	return change(raw, func(text string) string {
		before, _, found := strings.Cut(text, "?")
		if parsed, err := url.Parse(before); err != nil || parsed.User != nil {
			return masked
		}
		if found {
			return before + "?" + masked
		}
		return before
	})
}

// maskBody hides the members of a hook's own body that are named like secrets.
func maskBody(raw json.RawMessage) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return raw
	}
	for i := range members {
		if secretly.MatchString(members[i].Key) {
			members[i].Value = tasks.AppendString(nil, masked)
			continue
		}
		members[i].Value = maskBody(members[i].Value)
	}
	return tasks.AppendObject(nil, members)
}

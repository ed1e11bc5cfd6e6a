package control_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

var (
	allowed      = control.Reply{Class: tasks.ControlAllow}
	notification = control.Reply{Class: tasks.ControlNotification}
	invalid      = failure(tasks.ClassInvalidResponse)
)

func failure(class tasks.FailureClass) control.Reply {
	return control.Reply{Class: tasks.ControlError, Failure: class}
}

func denied(reason string) control.Reply {
	return control.Reply{Class: tasks.ControlDeny, Reason: reason}
}

var byDefault = denied("Blocked by beforeToolCall hook.")

func TestReadReply(t *testing.T) {
	t.Parallel()
	const bom = "\xef\xbb\xbf"
	deep := strings.Repeat("[", 30000) + strings.Repeat("]", 30000)
	for body, want := range map[string]control.Reply{
		`{"decision":"allow"}`:                                   allowed,
		`{"decision":"allow","reason":17}`:                       allowed,
		`{"decision":"allow","reason":null,"updatedInput":{}}`:   allowed,
		" \r\n\t{ \"decision\" : \"allow\" } \n":                 allowed,
		`{"\u0064ecision":"\u0061llow"}`:                         allowed,
		bom + `{"decision":"allow"}`:                             allowed,
		`{"decision":"deny","decision":"allow"}`:                 allowed,
		`{"decision":1,"decision":"allow"}`:                      allowed,
		`{"hookSpecificOutput":{"x":"deny"},"decision":"allow"}`: allowed,
		`{"decision":"allow","n":1e999,"tree":` + deep + `}`:     allowed,

		`{"decision":"deny"}`:                          byDefault,
		`{"decision":"deny","reason":""}`:              byDefault,
		`{"decision":"deny","reason":"a","reason":""}`: byDefault,
		`{"decision":"deny","reason":"  "}`:            denied("  "),
		`{"decision":"deny","reason":" a\n\"b\" "}`:    denied(" a\n\"b\" "),
		`{"decision":"deny","reason":"a\u0000b"}`:      denied("a\x00b"),
		`{"decision":"deny","reason":"操作を禁止"}`:         denied("操作を禁止"),
		`{"decision":"deny","Reason":1}`:               byDefault,
		`{"decision":"deny","reason":1,"reason":"x"}`:  denied("x"),
		`{"decision":"allow","decision":"deny"}`:       byDefault,
		bom + `{"decision":"deny"}`:                    byDefault,

		`{"decision":"denied"}`:                             invalid,
		`{"decision":"allowed"}`:                            invalid,
		`{"decision":"Allow"}`:                              invalid,
		`{"decision":"ALLOW"}`:                              invalid,
		`{"decision":"allow "}`:                             invalid,
		`{"decision":" allow"}`:                             invalid,
		`{"decision":"allow\u0000"}`:                        invalid,
		`{"decision":"\ufeffallow"}`:                        invalid,
		`{"decision":"ａｌｌｏｗ"}`:                              invalid,
		`{"decision":""}`:                                   invalid,
		`{"decision":"ask"}`:                                invalid,
		`{"decision":null}`:                                 invalid,
		`{"decision":true}`:                                 invalid,
		`{"decision":1}`:                                    invalid,
		`{"decision":["allow"]}`:                            invalid,
		`{"decision":{"decision":"allow"}}`:                 invalid,
		`{"decision":"allow","decision":"perhaps"}`:         invalid,
		`{"decision":"deny","reason":null}`:                 invalid,
		`{"decision":"deny","reason":403}`:                  invalid,
		`{"decision":"deny","reason":["x"]}`:                invalid,
		`{"decision":"deny","reason":"x","reason":null}`:    invalid,
		`{"decision":"allow"}` + "\xe2\x82":                 invalid,
		`{"decision":"allow","x":"` + "\xc0\xaf\"}":         invalid,
		`{"decision":"allow","x":"` + "\xed\xa0\x80\"}":     invalid,
		`{"decision":"allow","x":"` + "\xf4\x90\x80\x80\"}": invalid,
		"\xff\xfe\xfd":                                      invalid,
		"plain text \xff":                                   invalid,
		"\xef\xbb{}":                                        invalid,
		"\xfe\xff{}":                                        invalid,

		"":                                   notification,
		bom:                                  notification,
		"  \n":                               notification,
		"OK":                                 notification,
		"allow":                              notification,
		`"allow"`:                            notification,
		"null":                               notification,
		"true":                               notification,
		"0":                                  notification,
		"{}":                                 notification,
		`[{"decision":"allow"}]`:             notification,
		`{"ok":0}`:                           notification,
		`{"ok":true}`:                        notification,
		`{"ok":"false"}`:                     notification,
		`{"Decision":"allow"}`:               notification,
		`{"DECISION":"deny"}`:                notification,
		`{"decision ":"deny"}`:               notification,
		`{"data":{"decision":"deny"}}`:       notification,
		`{"__proto__":{"decision":"allow"}}`: notification,
		`{"decision":"allow"}{"decision":"deny"}`:      notification,
		`{"decision":"allow"} x`:                       notification,
		`{"decision":"allow"} // no`:                   notification,
		`{"decision":"allow",}`:                        notification,
		`{'decision':'allow'}`:                         notification,
		`{decision:"allow"}`:                           notification,
		`{"decision":"allow"`:                          notification,
		`{"decision":"allow","n":01}`:                  notification,
		`{"decision":"allow","n":NaN}`:                 notification,
		`{"decision":"allow","r":"` + "a\tb\"}":        notification,
		"\u00a0{\"decision\":\"allow\"}":               notification,
		bom + bom + `{"decision":"allow"}`:             notification,
		"```json\n{\"decision\":\"allow\"}\n```":       notification,
		`{"decision":"allow","tree":` + deep[1:] + `}`: notification,
	} {
		if diff := cmp.Diff(want, control.ReadReply(tasks.BeforeToolCall, 200, []byte(body))); diff != "" {
			t.Errorf("%.60q (-want +got):\n%s", body, diff)
		}
	}
}

func TestReadReplyByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]control.Reply{
		200: allowed, 201: allowed, 202: allowed, 203: allowed, 206: allowed, 299: allowed, 204: notification, 205: notification,
		0: failure(tasks.ClassReset), 101: failure(tasks.ClassReset), 199: failure(tasks.ClassReset), -1: failure(tasks.ClassReset),
		300: failure(tasks.ClassHTTP4xx), 301: failure(tasks.ClassHTTP3xx), 304: failure(tasks.ClassHTTP4xx), 308: failure(tasks.ClassHTTP3xx),
		400: failure(tasks.ClassHTTP4xx), 429: failure(tasks.ClassHTTP429), 500: failure(tasks.ClassHTTP5xx), 600: failure(tasks.ClassHTTP5xx),
	} {
		if diff := cmp.Diff(want, control.ReadReply(tasks.BeforeToolCall, status, []byte(`{"decision":"allow"}`))); diff != "" {
			t.Errorf("%d (-want +got):\n%s", status, diff)
		}
	}
	if got := control.ReadReply(tasks.AfterToolCall, 200, []byte(`{"decision":"deny"}`)); got.Reason != "Blocked by afterToolCall hook." {
		t.Errorf("reason of the other phase: %q", got.Reason)
	}
}

func TestReadReplyBySize(t *testing.T) {
	t.Parallel()
	body := append([]byte(`{"decision":"allow"}`), bytes.Repeat([]byte(" "), webhook.MaxReplyBytes)...)
	for size, want := range map[int]control.Reply{
		webhook.MaxReplyBytes: allowed, webhook.MaxReplyBytes + 1: failure(tasks.ClassResponseTooLarge),
	} {
		if diff := cmp.Diff(want, control.ReadReply(tasks.BeforeToolCall, 200, body[:size])); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s", size, diff)
		}
	}
	body[webhook.MaxReplyBytes] = 0xff
	if got := control.ReadReply(tasks.BeforeToolCall, 200, body[:webhook.MaxReplyBytes+1]); got.Failure != tasks.ClassResponseTooLarge {
		t.Errorf("too large and not UTF-8: %+v", got)
	}
}

// FuzzReadReply compares with an oracle that shares no code: encoding/json, and
// the table of docs/behaviour.md §12 written down again. Above all, nothing but
// the one documented form is an allow.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{
		`{"decision":"allow"}`, `{"decision":"deny","reason":"x"}`, `{"decision":"denied"}`, `{"ok":"false"}`, `{"ok":0}`,
		"```json\n{\"decision\":\"allow\"}\n```", `{"Decision":"allow"}`, "\xef\xbb\xbf{\"decision\":\"allow\"}", `{"decision":"allow"}x`,
		`{"decision":"deny","decision":"allow"}`, `{"\u0064ecision":"\u0061llow","reason":"\ud800"}`, `{"decision":"deny","reason":null}`, "\xff",
	} {
		for _, status := range []int{200, 204, 302} {
			f.Add(status, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if bytes.ContainsAny(body, "[{") && bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) >= tasks.MaxNesting {
			return
		}
		got := control.ReadReply(tasks.AfterToolCall, status, body)
		class, reason, code := oracle(status, body)
		if got.Class != class || got.Reason != reason || !slices.Contains(code, got.Code()) {
			t.Fatalf("%d %q: %+v, want %s %q %s", status, body, got, class, reason, code)
		}
	})
}

func oracle(status int, body []byte) (class tasks.ControlClass, reason string, codes []tasks.TransportCode) {
	none := []tasks.TransportCode{""}
	if status/100 != 2 || status < 0 {
		return tasks.ControlError, "", []tasks.TransportCode{tasks.CodeHTTPError, tasks.CodeNetworkError}
	}
	if status == 204 || status == 205 {
		return tasks.ControlNotification, "", none
	}
	if len(body) > 65536 {
		return tasks.ControlError, "", []tasks.TransportCode{tasks.CodeResponseTooLarge}
	}
	bad := []tasks.TransportCode{tasks.CodeInvalidResponse}
	if !utf8.Valid(body) {
		return tasks.ControlError, "", bad
	}
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(string(body), "\ufeff")))
	d.UseNumber()
	if !json.Valid([]byte(strings.TrimPrefix(string(body), "\ufeff"))) || d.Decode(&object) != nil || object == nil {
		return tasks.ControlNotification, "", none
	}
	decision, present := object["decision"]
	if !present {
		return tasks.ControlNotification, "", none
	}
	if decision == "allow" {
		return tasks.ControlAllow, "", none
	}
	why, given := object["reason"]
	words, isText := why.(string)
	if decision != "deny" || given && !isText {
		return tasks.ControlError, "", bad
	}
	if words == "" {
		words = "Blocked by afterToolCall hook."
	}
	return tasks.ControlDeny, words, none
}

func BenchmarkReadReply(b *testing.B) {
	for name, body := range map[string]string{
		"allow": `{"decision":"allow"}`, "deny": `{"decision":"deny","reason":"not in this directory"}`, "empty": "",
		"64KiB": `{"decision":"allow","x":"` + strings.Repeat("x", webhook.MaxReplyBytes-27) + `"}`,
		"deep":  `{"decision":"allow","x":` + strings.Repeat("[", 32000) + strings.Repeat("]", 32000) + `}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if got := control.ReadReply(tasks.BeforeToolCall, 200, []byte(body)); got.Class == tasks.ControlError {
					b.Fatal(got)
				}
			}
		})
	}
}

package tasks_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/google/go-cmp/cmp"
)

func wantCode(t *testing.T, err error, code tasks.Reason) *tasks.InvalidError {
	t.Helper()
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("error is %v, want an InvalidError with code %s", err, code)
	}
	if invalid.Code != code {
		t.Fatalf("code is %s (%v), want %s", invalid.Code, err, code)
	}
	return invalid
}

func TestSplitObjectKeepsBytes(t *testing.T) {
	t.Parallel()
	members := func(pairs ...string) []tasks.Member {
		out := []tasks.Member{}
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, tasks.Member{Key: pairs[i], Value: json.RawMessage(pairs[i+1])})
		}
		return out
	}
	for _, row := range []struct {
		why, raw string
		want     []tasks.Member
	}{
		{"empty", ` { } `, members()},
		{"big numbers", `{"n":12345678901234567890,"m":1e400,"k":-0.0E+07}`, members("n", "12345678901234567890", "m", "1e400", "k", "-0.0E+07")},
		{"duplicates in order", `{"a":1,"b":2,"a":3}`, members("a", "1", "b", "2", "a", "3")},
		{"case of keys", `{"Decision":1,"decision":2}`, members("Decision", "1", "decision", "2")},
		{"inner spaces", "{\"a\" :\t{ \"b\" : [ 1 , 2 ] } }", members("a", `{ "b" : [ 1 , 2 ] }`)},
		{"escaped keys", `{"\u0061\n\"":"\u0061"}`, members("a\n\"", `"\u0061"`)},
		{"half a pair", `{"s":"\ud800"}`, members("s", `"\ud800"`)},
		{"separators", "{\"s\":\"<&\u2028>\"}", members("s", "\"<&\u2028>\"")},
		{"literals", `{"t":true,"f":false,"n":null,"e":""}`, members("t", "true", "f", "false", "n", "null", "e", `""`)},
		{"long strings", `{"s":"` + strings.Repeat("é x", 50) + `\\","t":0}`, members("s", `"`+strings.Repeat("é x", 50)+`\\"`, "t", "0")},
	} {
		got, err := tasks.SplitObject([]byte(row.raw))
		if err != nil {
			t.Errorf("%s: %v", row.why, err)
			continue
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.why, diff)
		}
	}
}

func TestCheckJSONRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", tasks.MaxNesting) + strings.Repeat("]", tasks.MaxNesting)
	for _, good := range []string{`0`, ` null `, `"\/\b"`, deep} {
		if err := tasks.CheckJSON([]byte(good)); err != nil {
			t.Errorf("CheckJSON(%.20q): %v", good, err)
		}
	}
	for _, row := range []struct {
		raw  string
		code tasks.Reason
	}{
		{"\xff{", tasks.InvalidUTF8},
		{"\"\xc3\"", tasks.InvalidUTF8},
		{"\"\xed\xa0\x80\"", tasks.InvalidUTF8},
		{"", tasks.InvalidJSON},
		{"{", tasks.InvalidJSON},
		{`{"a":1}x`, tasks.InvalidJSON},
		{`{"a":1,}`, tasks.InvalidJSON},
		{`[1,]`, tasks.InvalidJSON},
		{`{"a" 1}`, tasks.InvalidJSON},
		{`{a:1}`, tasks.InvalidJSON},
		{`{'a':1}`, tasks.InvalidJSON},
		{`01`, tasks.InvalidJSON},
		{`1.`, tasks.InvalidJSON},
		{`.5`, tasks.InvalidJSON},
		{`+1`, tasks.InvalidJSON},
		{`-`, tasks.InvalidJSON},
		{`1e`, tasks.InvalidJSON},
		{`NaN`, tasks.InvalidJSON},
		{`nul`, tasks.InvalidJSON},
		{`"a`, tasks.InvalidJSON},
		{`"\x"`, tasks.InvalidJSON},
		{`"\u12g4"`, tasks.InvalidJSON},
		{"\"\n\"", tasks.InvalidJSON},
		{"\"1234567\x1f\"", tasks.InvalidJSON},
		{"\ufeff{}", tasks.InvalidJSON},
		{`/**/{}`, tasks.InvalidJSON},
		{"[" + deep + "]", tasks.InvalidJSON},
	} {
		wantCode(t, tasks.CheckJSON([]byte(row.raw)), row.code)
	}
	_, err := tasks.SplitObject([]byte(`[1]`))
	wantCode(t, err, tasks.NotObject)
	_, err = tasks.SplitObject([]byte(`[1`))
	wantCode(t, err, tasks.InvalidJSON)
}

func TestAppendObjectEscapesOnlyWhatJSONDemands(t *testing.T) {
	t.Parallel()
	got := tasks.AppendObject(nil, []tasks.Member{
		{Key: "<&>\u2028\"\\\n\x01\x7fé😀", Value: json.RawMessage("1e400")},
		{Key: "bad\xff", Value: json.RawMessage(`"x"`)},
	})
	want := "{\"<&>\u2028\\\"\\\\\\n\\u0001\x7fé😀\":1e400,\"bad\ufffd\":\"x\"}"
	if string(got) != want {
		t.Fatalf("AppendObject = %s, want %s", got, want)
	}
}

// FuzzSplitObject holds the scanner against encoding/json.
func FuzzSplitObject(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"a":"\u00e9"}`, `{"n":-1.5e+3}`, `[]`, `{"a":"\ud800\\"}`, ` {} `, `{"":0}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		valid := json.Valid(raw) && utf8.Valid(raw)
		if got := tasks.CheckJSON(raw) == nil; got != valid {
			t.Fatalf("CheckJSON accepts %q: %v, want %v", raw, got, valid)
		}
		members, err := tasks.SplitObject(raw)
		object := valid && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
		if (err == nil) != object {
			t.Fatalf("SplitObject(%q): %v, want success %v", raw, err, object)
		}
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatalf("Unmarshal(%q): %v", raw, err)
		}
		got := map[string]json.RawMessage{}
		for _, m := range members {
			got[m.Key] = m.Value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("members of %q (-want +got):\n%s", raw, diff)
		}
		again, err := tasks.SplitObject(tasks.AppendObject(nil, members))
		if diff := cmp.Diff(members, again); err != nil || diff != "" {
			t.Fatalf("written and read again: %v (-want +got):\n%s", err, diff)
		}
	})
}

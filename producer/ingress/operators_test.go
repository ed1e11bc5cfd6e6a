package ingress_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// bury makes n dead letters of the operation op and returns their ids, in the
// order of their events.
func (b *bundle) bury(n int) []string {
	b.t.Helper()
	b.register(criticalJSON("h"))
	letters := make([]string, 0, n)
	for i := range n {
		b.post("", eventJSON(fmt.Sprintf(`"id":"e%d",`, i+1))).want(202)
		b.settle(lane.Bury)
	}
	for _, letter := range b.dead("").DeadLetters {
		letters = append(letters, letter.ID)
	}
	return letters
}

// dead lists dead letters.
func (b *bundle) dead(query string) ingress.DeadLetterList {
	b.t.Helper()
	var list ingress.DeadLetterList
	b.call("GET", "/v1/dead-letters"+query, "").want(200).into(&list)
	return list
}

// replay posts a replay.
func (b *bundle) replay(body string) ingress.ReplayResult {
	b.t.Helper()
	var result ingress.ReplayResult
	b.call("POST", "/v1/dead-letters:replay", body).want(200).into(&result)
	return result
}

func TestLanes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var list ingress.LaneList
	if a := b.call("GET", "/v1/lanes", "").want(200).into(&list); len(list.Lanes) != 0 || !strings.Contains(a.body, `"lanes":[]`) {
		t.Fatalf("lanes are %s", a.body)
	}
	b.register(criticalJSON("h"))
	b.post("", "["+eventJSON("")+","+eventJSON("")+"]").want(202)
	b.settle(lane.Park)
	b.call("POST", "/v1/operations/other/events", eventJSON("")).want(202)
	b.call("GET", "/v1/lanes?limit=1", "").want(200).into(&list)
	if len(list.Lanes) != 1 {
		t.Fatalf("lanes are %+v", list.Lanes)
	}
	b.call("GET", "/v1/lanes", "").want(200).into(&list)
	if len(list.Lanes) != 2 {
		t.Fatalf("lanes are %+v", list.Lanes)
	}
	var view ingress.LaneView
	b.call("GET", "/v1/lanes/op", "").want(200).into(&view)
	parked := view.Parked
	view.Parked = nil
	if diff := cmp.Diff(ingress.LaneView{OperationID: "op", State: "ready", Waiting: 1, Next: 3}, view); diff != "" {
		t.Fatalf("lane (-want +got):\n%s", diff)
	}
	if len(parked) != 1 || parked[0].Attempt != 1 || parked[0].DueAt == 0 || parked[0].Outcome.HookID != "h" || !parked[0].Outcome.Critical {
		t.Fatalf("parked hooks are %+v", parked)
	}
	b.call("GET", "/v1/lanes/nobody", "").problem(404, "not_found")
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?x=1"} {
		b.call("GET", "/v1/lanes"+query, "").problem(422, "invalid_query")
	}
}

func TestDeadLettersAreListedAndShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if list := b.dead(""); list.DeadLetters == nil || len(list.DeadLetters) != 0 {
		t.Fatalf("list is %+v", list)
	}
	b.bury(3)
	first := b.dead("?limit=2")
	if len(first.DeadLetters) != 2 || first.Next == "" || first.Total != 3 || first.DeadLetters[0].Task != nil {
		t.Fatalf("first page is %+v", first)
	}
	second := b.dead("?limit=2&cursor=" + url.QueryEscape(first.Next))
	if len(second.DeadLetters) != 1 || second.DeadLetters[0].EventID != "e3" || second.Next != "" {
		t.Fatalf("second page is %+v", second)
	}
	for query, want := range map[string]int{
		"?operation=op": 3, "?operation=x": 0, "?hook=h": 3, "?hook=x": 0, "?type=onComplete": 3, "?type=onError": 0,
		"?class=http_5xx": 3, "?class=dns": 0, "?operation=op&hook=h&type=onComplete&class=http_5xx": 3,
	} {
		if got := len(b.dead(query).DeadLetters); got != want {
			t.Fatalf("%s lists %d letters, want %d", query, got, want)
		}
	}
	var letter ingress.DeadLetterView
	b.call("GET", "/v1/dead-letters/"+first.DeadLetters[0].ID, "").want(200).into(&letter)
	if letter.EventID != "e1" || letter.OperationID != "op" || letter.At == 0 || letter.Outcome.Status != 503 || letter.Outcome.Standing != lane.StandingDead {
		t.Fatalf("letter is %+v", letter)
	}
	task, err := tasks.DecodeTask(letter.Task)
	if err != nil || task.ID != "e1" {
		t.Fatalf("task is %s (%v)", letter.Task, err)
	}
	b.call("GET", "/v1/dead-letters/0.nothing", "").problem(404, "not_found")
	b.call("GET", "/v1/dead-letters/x%2Fy", "").problem(404, "not_found")
}

func TestInvalidDeadLetterQueries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.call("GET", "/v1/dead-letters?type=x", "").problem(422, "unknown_type")
	b.call("GET", "/v1/dead-letters?class=x", "").problem(422, "invalid_field")
	b.call("GET", "/v1/dead-letters?limit=1001", "").problem(422, "invalid_query")
	own := base64.RawURLEncoding.EncodeToString([]byte("0|1|x"))
	for _, cursor := range []string{"x", "0|1|x", own, "AAAAAA"} {
		b.call("GET", "/v1/dead-letters?cursor="+url.QueryEscape(cursor), "").problem(422, "invalid_cursor")
	}
}

func TestPoisonIsShownAndNotReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.store.Quarantine(t.Context(), "op", "poison", []byte("{\xff")); err != nil {
		t.Fatalf("quarantine: %v", err)
	}
	id := b.dead("").DeadLetters[0].ID
	var letter ingress.DeadLetterView
	b.call("GET", "/v1/dead-letters/"+id, "").want(200).into(&letter)
	if string(letter.Poison) != "{\xff" || letter.Task != nil {
		t.Fatalf("letter is %+v", letter)
	}
	want := ingress.ReplayResult{NotReplayed: []ingress.NotReplayed{{ID: "0.gone", Reason: "not_found"}, {ID: id, Reason: "not_replayable"}}}
	if diff := cmp.Diff(want, b.replay(`{"ids":["0.gone","`+id+`"]}`)); diff != "" {
		t.Fatalf("result (-want +got):\n%s", diff)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body func(letters []string) string
		want int
	}{
		"ids in any order": {func(l []string) string { return `{"ids":["` + l[2] + `","` + l[0] + `","` + l[1] + `"]}` }, 3},
		"no ids":           {func([]string) string { return `{"ids":[]}` }, 0},
		"filter": {func([]string) string {
			return `{"filter":{"operation":"op","hook":"h","type":"onComplete","class":"http_5xx"}}`
		}, 3},
		"other filter": {func([]string) string { return `{"filter":{"operation":"x"}}` }, 0},
		"all":          {func([]string) string { return `{"all":true}` }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			result := b.replay(test.body(b.bury(3)))
			if result.Replayed != test.want || len(result.NotReplayed) != 0 {
				t.Fatalf("result is %+v, want %d", result, test.want)
			}
			if left := b.dead("").Total; left != int64(3-test.want) {
				t.Fatalf("%d letters are left", left)
			}
			if test.want == 0 {
				return
			}
			var order []string
			for _, entry := range b.claim().Entries {
				task, err := tasks.DecodeTask(entry.Doc)
				if err != nil {
					t.Fatalf("decode task: %v", err)
				}
				order = append(order, task.ID)
			}
			if diff := cmp.Diff([]string{"e1", "e2", "e3"}, order); diff != "" {
				t.Fatalf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	letters := b.bury(1)
	many, _ := json.Marshal(make([]string, 1001))
	for body, want := range map[string]string{
		"":                             "invalid_json",
		"[]":                           "not_object",
		"{}":                           "invalid_request",
		`{"all":true,"ids":["x"]}`:     "invalid_request",
		`{"all":false}`:                "invalid_field",
		`{"all":null}`:                 "invalid_field",
		`{"ids":"x"}`:                  "invalid_request",
		`{"ids":[1]}`:                  "invalid_field",
		`{"ids":null}`:                 "invalid_request",
		`{"filter":{}}`:                "invalid_request",
		`{"filter":[]}`:                "not_object",
		`{"filter":{"x":"y"}}`:         "unknown_field",
		`{"filter":{"operation":1}}`:   "invalid_field",
		`{"filter":{"type":"x"}}`:      "unknown_type",
		`{"filter":{"class":"x"}}`:     "invalid_field",
		`{"al":true}`:                  "unknown_field",
		`{"ids":` + string(many) + `}`: "batch_too_large",
		`{"filter":{"operation":"` + "\xff" + `"}}`: "invalid_utf8",
	} {
		status := map[string]int{"invalid_json": 400, "invalid_utf8": 400, "batch_too_large": 413}[want]
		if status == 0 {
			status = 422
		}
		b.call("POST", "/v1/dead-letters:replay", body).problem(status, want)
	}
	b.call("POST", "/v1/dead-letters:replay", `{"all":true}`, "Content-Type", "application/x-ndjson").problem(415, "unsupported_media_type")
	if left := b.dead(""); left.DeadLetters[0].ID != letters[0] {
		t.Fatalf("letters are %+v", left)
	}
}

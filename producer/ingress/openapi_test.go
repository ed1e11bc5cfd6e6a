package ingress_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer/ingress"
)

var update = flag.Bool("update", false, "rewrite docs/openapi.json")

const documentPath = "../../docs/openapi.json"

func TestOpenAPIDocumentIsCheckedIn(t *testing.T) {
	t.Parallel()
	b := asking(t, &questions{}, func(c *ingress.Config) { c.Deferred = &placeholders{} })
	served := b.call("GET", "/openapi.json", "").want(200)
	if got := served.header.Get("Content-Type"); got != "application/openapi+json" {
		t.Fatalf("content-type is %q", got)
	}
	if diff := cmp.Diff(string(b.api.OpenAPI()), served.body); diff != "" {
		t.Fatalf("served document differs (-want +got):\n%s", diff)
	}
	if *update {
		if err := os.WriteFile(documentPath, []byte(served.body), 0o644); err != nil {
			t.Fatalf("write document: %v", err)
		}
	}
	kept, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatalf("read document: %v", err)
	}
	if diff := cmp.Diff(string(kept), served.body); diff != "" {
		t.Fatalf("docs/openapi.json is stale, run the test with -update (-kept +served):\n%s", diff)
	}
}

func TestOpenAPIDocumentTellsWhatTheAPIDoes(t *testing.T) {
	t.Parallel()
	b := asking(t, &questions{}, func(c *ingress.Config) { c.Deferred = &placeholders{} })
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			Security   []map[string][]string `json:"security"`
			Parameters []struct {
				Name string `json:"name"`
			} `json:"parameters"`
			RequestBody map[string]any            `json:"requestBody"`
			Responses   map[string]map[string]any `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(b.api.OpenAPI(), &document); err != nil {
		t.Fatalf("decode document: %v", err)
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Fatalf("version is %q", document.OpenAPI)
	}
	got := map[string][]string{}
	for path, methods := range document.Paths {
		for method, operation := range methods {
			names := []string{}
			for _, p := range operation.Parameters {
				names = append(names, p.Name)
			}
			role := ""
			if len(operation.Security) > 0 {
				role = operation.Security[0]["bearer"][0]
			}
			if operation.RequestBody != nil {
				names = append(names, "body")
			}
			got[method+" "+path] = append([]string{role}, names...)
			if operation.Responses["default"] == nil {
				t.Errorf("%s %s does not document its problems", method, path)
			}
		}
	}
	want := map[string][]string{
		"get /healthz":                                 {""},
		"get /readyz":                                  {""},
		"put /v1/operations/{op}/hooks":                {"runtime", "op", "body"},
		"post /v1/operations/{op}/hooks":               {"runtime", "op", "body"},
		"get /v1/operations/{op}/hooks":                {"runtime", "op"},
		"delete /v1/operations/{op}/hooks":             {"runtime", "op"},
		"post /v1/operations/{op}/events":              {"runtime", "op", "await", "awaitMode", "traceparent", "body"},
		"get /v1/operations/{op}/events/{id}":          {"runtime", "op", "id", "wait", "mode"},
		"post /v1/operations/{op}/tool-calls:evaluate": {"runtime", "op", "wait", "Prefer", "traceparent", "body"},
		"post /v1/operations/{op}/tool-calls:explain":  {"runtime", "op", "body"},
		"get /v1/operations/{op}/verdicts/{id}":        {"runtime", "op", "id", "wait"},
		"delete /v1/operations/{op}/verdicts/{id}":     {"runtime", "op", "id"},
		"post /v1/deferred/{id}:open":                  {"runtime", "id", "body"},
		"post /v1/deferred/{id}:complete":              {"runtime", "id", "traceparent", "body"},
		"get /v1/deferred/{id}":                        {"runtime", "id", "wait"},
		"get /v1/lanes":                                {"operator", "limit"},
		"get /v1/lanes/{op}":                           {"operator", "op"},
		"get /v1/dead-letters":                         {"operator", "operation", "hook", "type", "class", "cursor", "limit"},
		"get /v1/dead-letters/{id}":                    {"operator", "id"},
		"post /v1/dead-letters:replay":                 {"operator", "body"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("operations (-want +got):\n%s", diff)
	}
	if document.Components.Schemas["ErrorModel"] != nil || document.Components.Schemas["Problem"] == nil {
		t.Fatalf("the document does not describe the API's own problems")
	}
}

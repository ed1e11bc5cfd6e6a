package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Version is the version of the HTTP API, as its OpenAPI document names it.
const Version = "1.0.0"

// API is the HTTP API. Build one with New; it is safe for concurrent use, owns
// no goroutine, and needs no closing beyond Drain.
type API struct {
	config   Config
	metrics  *metrics
	huma     huma.API
	document []byte
	handler  http.Handler
	// draining ends when the server is about to stop.
	draining context.Context
	drain    context.CancelCauseFunc
}

// New builds an API. It touches no network; an error names what is wrong with
// the configuration.
func New(config Config) (*API, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure http api: %w", err)
	}
	config = config.withDefaults()
	counters, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register http metrics: %w", err)
	}
	a := &API{config: config, metrics: counters}
	a.draining, a.drain = context.WithCancelCause(context.Background())
	mux := http.NewServeMux()
	a.huma = humago.New(newSegmentMux(mux), humaConfig())
	a.huma.UseMiddleware(newGuardian(config).middleware, checkQuery)
	a.routes()
	if a.document, err = a.describe(); err != nil {
		return nil, fmt.Errorf("write openapi document: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", a.serveDocument)
	if config.Metrics != nil {
		mux.Handle("GET /metrics", config.Metrics)
	}
	mux.HandleFunc(fallbackPattern, fallback(mux))
	a.handler = a.observe(guard(mux))
	return a, nil
}

// Handler answers every route of the API.
func (a *API) Handler() http.Handler { return a.handler }

// OpenAPI returns the OpenAPI 3.1 document as it is served, indented.
func (a *API) OpenAPI() []byte { return append([]byte(nil), a.document...) }

// Drain prepares for the end of the server: waiting callers are answered with
// what is known, and /readyz turns to 503. Call it before http.Server.Shutdown.
// It is idempotent and returns at once.
func (a *API) Drain() { a.drain(errDraining) }

// humaConfig leaves out what the framework would serve by itself.
func humaConfig() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(errorModelType, problemDocType)
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Gantry", Version: Version,
				Description: "Durable lifecycle hooks for AI-agent runtimes. docs/http-api.md tells what the calls mean.",
			},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					bearerScheme: {Type: "http", Scheme: "bearer", Description: "A token with the role runtime or operator; an operator may do all."},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{translate},
	}
}

// register adds an operation whose errors become problem documents.
func register[I, O any](a *API, operation huma.Operation, handler func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, operation, func(ctx context.Context, input *I) (*O, error) {
		output, err := handler(ctx, input)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return output, nil
	})
}

// problem translates err and logs what the caller is not shown.
func (a *API) problem(ctx context.Context, err error) *Problem {
	p := problemOf(err)
	p.RequestID = exchangeOf(ctx).id
	var said *Problem
	if p.Status >= http.StatusInternalServerError && !errors.As(err, &said) {
		a.config.Logger.WithFields(logrus.Fields{
			logKeyRequestID: p.RequestID, tasks.LogCode: string(p.Code), tasks.LogErr: err,
		}).Error(logInternal)
	}
	return p
}

// step bounds one step on the store that ends with its request.
func (a *API) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.config.StoreTimeout)
}

// detached bounds one step on the store that must not end with its request: a
// caller that goes away in the middle of a write must not decide about it.
func (a *API) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), a.config.StoreTimeout)
}

// environment reads the deployment's hooks only to see that they are valid.
func (a *API) environment(ctx context.Context) error {
	_, err := a.config.EnvironmentHooks()
	if err == nil {
		return nil
	}
	a.config.Logger.WithFields(logrus.Fields{
		logKeyRequestID: exchangeOf(ctx).id, tasks.LogErr: err,
	}).Error(logEnvironment)
	return newProblem(CodeEnvironmentInvalid,
		"the deployment's environment hooks are invalid, so nothing is taken until its operator repairs them; the log names the variable")
}

// operation checks the id in a path.
func operation(id string) error {
	if err := tasks.CheckOperationID(id); err != nil {
		return atPath(err, "path.op")
	}
	return nil
}

// checkQuery refuses parameters that the operation does not have: a misspelt
// await would be silently no await.
func checkQuery(ctx huma.Context, next func(huma.Context)) {
	known := map[string]bool{}
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			known[p.Name] = true
		}
	}
	where := ctx.URL()
	for name, values := range where.Query() {
		fault := Fault{Path: "query." + name, Code: CodeInvalidQuery}
		switch {
		case !known[name]:
			fault.Message, fault.Fix = "parameter is unknown", "see /openapi.json for the parameters of this route"
		case len(values) > 1:
			fault.Message, fault.Fix = "parameter is given more than once", "send it once"
		default:
			continue
		}
		p := newFault(fault)
		p.RequestID = exchangeOf(ctx.Context()).id
		_, w := humago.Unwrap(ctx)
		p.write(w)
		return
	}
	next(ctx)
}

// serveDocument serves the OpenAPI document.
func (a *API) serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/openapi+json")
	_, _ = w.Write(a.document) // the caller may be gone
}

// describe writes the OpenAPI document once: it does not change any more.
func (a *API) describe() ([]byte, error) {
	document, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		return nil, err
	}
	return append(document, '\n'), nil
}

// waitMode reads a mode that the framework has checked.
func waitMode(mode string) lane.WaitMode {
	if mode == string(lane.WaitFinal) {
		return lane.WaitFinal
	}
	return lane.WaitFirst
}

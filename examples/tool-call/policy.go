package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// policy is the receiver that decides: a web server on this machine.
type policy struct {
	server *http.Server
	url    string
}

// startPolicy serves at a free port.
func startPolicy() (*policy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &policy{url: "http://" + listener.Addr().String()}
	p.server = &http.Server{Handler: http.HandlerFunc(p.decide), ReadHeaderTimeout: 10 * time.Second}
	// It ends with an error when it is stopped, which says nothing.
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *policy) stop() { _ = p.server.Close() }

// hooks ask the policy before each call and about each result. When it does not
// answer, nothing runs.
func (p *policy) hooks() []tasks.Hook {
	control := &tasks.Webhook{URL: p.url, ResponseHandling: tasks.HandleToolCall, OnError: tasks.PolicyBlock}
	return []tasks.Hook{
		{ID: "policy", Type: tasks.BeforeToolCall, Webhook: control},
		{ID: "policy", Type: tasks.AfterToolCall, Webhook: control},
	}
}

// decide answers one question.
func (p *policy) decide(w http.ResponseWriter, r *http.Request) {
	var event struct {
		HookType   tasks.HookType `json:"hookType"`
		Identifier string         `json:"identifier"`
		Result     struct {
			Content string `json:"content"`
		} `json:"result"`
	}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := map[string]string{"decision": "allow"}
	switch {
	case event.HookType == tasks.BeforeToolCall && event.Identifier == "shell":
		answer = map[string]string{"decision": "deny", "reason": "no shell in this run"}
	case event.HookType == tasks.AfterToolCall && strings.Contains(event.Result.Content, "password"):
		answer = map[string]string{"decision": "deny", "reason": "the result held a password"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

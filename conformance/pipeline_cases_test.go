package conformance_test

const (
	allowing = `{"id":"c","type":"beforeToolCall","webhook":{"url":"https://rx.test/c","responseHandling":"toolCall"},"reply":{"decision":"allow"}}`
	passing  = `{"id":"k","type":"afterToolCall","webhook":{"url":"https://rx.test/k","responseHandling":"toolCall"},"reply":{"decision":"allow"}}`
	refusing = `{"id":"k","type":"afterToolCall","webhook":{"url":"https://rx.test/k","responseHandling":"toolCall"},"reply":{"decision":"deny","reason":"hidden"}}`
	noticing = `{"id":"w","type":"beforeToolCall","webhook":{"url":"https://rx.test/w"}},{"id":"n","type":"afterToolCall","webhook":{"url":"https://rx.test/n"}},
		{"id":"e","type":"onToolCallError","webhook":{"url":"https://rx.test/e"}}`
	mocking     = `{"id":"a","type":"beforeToolCall","handler":[{"mock":{"content":"one","success":true}}]}`
	emptyResult = `{"content":"","success":false}`
)

func init() {
	conventions["tool_context"] = toolContextConventions
	for _, mode := range []string{"local", "queue"} {
		for _, rest := range pipelineConventions {
			conventions["mock"] = append(conventions["mock"], `{"pipeline":true,"runtime_mode":"`+mode+`","id":"`+mode+`, `+rest)
		}
	}
	conventions["mock"] = append(conventions["mock"], localPipelines...)
}

// pipelineConventions hold in both modes; each starts in its id.
var pipelineConventions = []string{
	`all is well","hooks":[` + allowing + `,` + passing + `,` + noticing + `],"tool_returns":{"content":"full","success":true,"executionTime":3,"state":{"k":1},"workRegistration":{"type":"task"}},
	  "expect":{"tool_executed":true,"tool_attempts":1,"attempts":1,"mocked":false,"status":"executed","controls_asked":["c","k"],"webhooks":["w","n"],"called":[],"logged":[],
	  "tool_result":{"content":"full","success":true,"executionTime":3,"state":{"k":1},"workRegistration":{"type":"task"}},
	  "control_payload_contains":{"hookId":"k","mocked":false,"result":{"content":"full","workRegistration":{"type":"task"}}},"webhook_payload_contains":{"hookId":"n","result":{"content":"full"}}}}`,
	`after deny","hooks":[` + refusing + `,` + noticing + `],"tool_returns":{"content":"secret of the tool","success":true,"executionTime":3,"deviceExecutionTime":2,"stop":false,"error":"x","state":{"k":1},"workRegistration":{"type":"task"}},
	  "expect":{"tool_executed":true,"attempts":1,"status":"blocked","webhooks":["w","n"],"webhook_payload_contains":{"hookId":"n","mocked":false,"result":{"content":"hidden","error":"hook_denied"}},
	  "tool_result":{"content":"hidden","success":false,"error":"hook_denied","executionTime":3,"deviceExecutionTime":2,"stop":false,"state":{"type":"blocked","phase":"afterToolCall","reason":"hidden"}}}}`,
	`a failure is judged","hooks":[` + refusing + `],"tool_fails_times":1,"tool_returns":{"content":"bad","success":false,"error":"x"},
	  "expect":{"tool_attempts":2,"attempts":2,"control_payload_contains":{"result":{"content":"bad","success":false,"error":"x"}},"controls_asked":["k"]}}`,
	`an error that blocks","hooks":[{"id":"c","type":"beforeToolCall","webhook":{"url":"https://rx.test/c","responseHandling":"toolCall","onError":"block"},"outcome":500},` + noticing + `],
	  "expect":{"tool_executed":false,"attempts":0,"controls_asked":["c"],"webhooks":["n"],"logged":["c"],
	  "tool_result":{"content":"hook_control_error","error":"hook_denied","executionTime":0,"state":{"type":"blocked","reason":"hook_control_error"},"success":false}}}`,
	`an error that does not","hooks":[{"id":"c","type":"beforeToolCall","webhook":{"url":"https://rx.test/c","responseHandling":"toolCall"},"outcome":"reset"},` + passing + `],
	  "expect":{"tool_executed":true,"controls_asked":["c","k"],"logged":["c"]}}`,
	`thrown","hooks":[` + allowing + `,` + refusing + `,` + noticing + `],"tool_throws":"boom",
	  "expect":{"tool_executed":true,"tool_attempts":1,"status":"failed","controls_asked":["c"],"webhooks":["w","e"],"webhook_payload_contains":{"hookId":"e","error":"boom"}}}`,
	`deferred","hooks":[` + allowing + `,` + refusing + `,` + noticing + `],"tool_returns":{"content":"","deferred":true,"success":true},
	  "expect":{"tool_executed":true,"controls_asked":["c"],"webhooks":["w"],"status":"deferred","tool_result":{"content":"","deferred":true,"success":true}}}`,
	`cancelled before","cancel":"before","hooks":[` + allowing + `,` + noticing + `],
	  "expect":{"tool_executed":false,"attempts":0,"controls_asked":[],"webhooks":[],"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`cancelled before, no hooks","cancel":"before","hooks":[],"expect":{"tool_executed":false,"attempts":0,"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`cancelled during a control","cancel":"during:c","hooks":[` + allowing + `,` + noticing + `],
	  "expect":{"tool_executed":false,"attempts":0,"controls_asked":["c"],"webhooks":[],"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`cancelled during an after control","cancel":"during:k","hooks":[` + refusing + `,` + noticing + `],
	  "expect":{"tool_executed":true,"attempts":1,"controls_asked":["k"],"webhooks":["w"],"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`cancelled during the tool","cancel":"during_tool","hooks":[` + passing + `,` + noticing + `],
	  "expect":{"tool_executed":true,"attempts":1,"controls_asked":[],"webhooks":["w"],"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`cancelled during a tool that throws","cancel":"during_tool","tool_throws":"boom","hooks":[` + passing + `,` + noticing + `],
	  "expect":{"attempts":1,"controls_asked":[],"webhooks":["w"],"status":"cancelled","tool_result":` + emptyResult + `}}`,
	`critical notifications","hooks":[{"id":"w","type":"beforeToolCall","webhook":{"url":"https://rx.test/w","fallback":"none"},"outcome":500},
	  {"id":"n","type":"afterToolCall","webhook":{"url":"https://rx.test/n","fallback":"none"},"outcome":"reset"}],
	  "expect":{"tool_executed":true,"status":"executed","webhooks":["w","n"],"logged":["n","w"]}}`,
	`a matcher","tool":{"identifier":"mail","apiName":"send"},"hooks":[{"id":"c","type":"beforeToolCall","matcher":"^shell/","webhook":{"url":"https://rx.test/c","responseHandling":"toolCall"},"reply":{"decision":"deny"}},
	  {"id":"d","type":"beforeToolCall","matcher":"^mail/send$","webhook":{"url":"https://rx.test/d","responseHandling":"toolCall"},"reply":{"decision":"deny"}}],
	  "expect":{"tool_executed":false,"controls_asked":["d"]}}`,
	`the environment","hooks":[` + noticing + `],"env_hooks":[{"id":"server-env-webhook:beforeToolCall","type":"beforeToolCall","webhook":{"url":"https://rx.test/env","responseHandling":"toolCall"},"reply":{"decision":"deny","reason":"operator"}}],
	  "expect":{"tool_executed":false,"controls_asked":["server-env-webhook:beforeToolCall"],"webhooks":["n"],
	  "tool_result":{"content":"operator","error":"hook_denied","executionTime":0,"state":{"type":"blocked","reason":"operator"},"success":false}}}`,
	`a stored list of another process","persisted":[{"id":"p","type":"beforeToolCall","webhook":{"url":"https://rx.test/p","responseHandling":"toolCall"}},{"id":"q","type":"afterToolCall","webhook":{"url":"https://rx.test/q"}}],
	  "expect":{"tool_executed":true,"controls_asked":["p"],"webhooks":["q"]}}`,
}

// localPipelines need handlers, which exist in local mode only.
var localPipelines = []string{
	`{"id":"mocked","pipeline":true,"hooks":[` + mocking + `,` + allowing + `,` + passing + `,` + noticing + `],
	  "expect":{"tool_executed":false,"tool_attempts":0,"attempts":0,"mocked":true,"called":["a"],"mock_returns":[true],"controls_asked":["c","k"],"webhooks":["w","n"],
	  "tool_result":{"content":"one","success":true},"webhook_payload_contains":{"hookId":"n","mocked":true,"result":{"content":"one"}}}}`,
	`{"id":"handlers run once","pipeline":true,"hooks":[{"id":"a","type":"beforeToolCall","handler":["throw"]},{"id":"b","type":"afterToolCall","handler":[]},
	  {"id":"x","type":"beforeToolCall","handler":[],"webhook":{"url":"https://rx.test/x"}},` + noticing + `],
	  "expect":{"tool_executed":true,"called":["a","x","b"],"webhooks":["w","n"],"logged":["a"]}}`,
	`{"id":"handlers in queue mode","pipeline":true,"runtime_mode":"queue","hooks":[` + mocking + `,{"id":"x","type":"beforeToolCall","handler":[],"webhook":{"url":"https://rx.test/x"}}],
	  "expect":{"tool_executed":true,"mocked":false,"called":[],"webhooks":["x"]}}`,
	`{"id":"cancelled in a handler","pipeline":true,"cancel":"during:a","hooks":[` + mocking + `,` + noticing + `],
	  "expect":{"tool_executed":false,"called":["a"],"webhooks":["w"],"status":"cancelled","tool_result":` + emptyResult + `}}`,
}

const factsOfACall = `"call":{"id":"call_1","identifier":"mail","apiName":"send","arguments":"{\"to\":\"a\"}","executor":"client"},`

var toolContextConventions = []string{
	`{"id":"no json",` + `"call":{"id":"c","identifier":"i","apiName":"n","arguments":"to a"},"runtime":{"operationId":"op","stepIndex":0},"context":{"callIndex":1,"parentMessageId":"m"},"origin":{},
	  "expect":{"args":{},"callIndex":1,"stepIndex":0},"expect_absent":["userId"]}`,
	`{"id":"an array",` + `"call":{"id":"c","identifier":"i","apiName":"n","arguments":"[1]"},"runtime":{"operationId":"op","stepIndex":0},"context":{"callIndex":1,"parentMessageId":"m"},
	  "expect":{"args":{}}}`,
	`{"id":"no client",` + factsOfACall + `"runtime":{"operationId":"op","stepIndex":1,"canForwardToClient":false},"context":{"callIndex":1,"parentMessageId":"m","parentOperationId":"no lineage"},
	  "origin":{"userId":"o","lineage":null},"expect":{"executor":"server","userId":"o","args":{"to":"a"}},"expect_absent":["parentOperationId"]}`,
	`{"id":"a sandbox",` + factsOfACall + `"runtime":{"operationId":"op","stepIndex":1,"userId":"r","canForwardToClient":true},"context":{"callIndex":1,"parentMessageId":"m"},
	  "origin":{"userId":"o"},"plan":{"kind":"sandbox","target":"sandbox"},"bound_device":"dev-1","expect":{"executor":"client","userId":"r","executionTarget":"sandbox"},"expect_absent":["activeDeviceId"]}`,
	`{"id":"the policy's no",` + factsOfACall + `"runtime":{"operationId":"op","stepIndex":1},"context":{"callIndex":1,"parentMessageId":"m"},"origin":{},
	  "plan":{"kind":"device"},"bound_device":"dev-1","device_policy":{"canUseDevice":false},"expect":{"toolCallId":"call_1"},"expect_absent":["activeDeviceId","executionTarget"]}`,
}

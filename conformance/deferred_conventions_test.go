package conformance_test

const (
	openedRow = `{"do":"open","row":"r","content":"","call":{"identifier":"crew","apiName":"delegate","toolCallId":"c","arguments":"{}"}}`
	afterHook = `{"id":"k","type":"afterToolCall","webhook":{"url":"https://p.test/","responseHandling":"toolCall"}}`
	envHook   = `{"id":"server-env-webhook:afterToolCall","type":"afterToolCall","webhook":{"url":"https://env.test/","responseHandling":"toolCall","onError":"block"}}`
	pendingR  = `{"content":"","intervention":{"status":"pending","operationId":"op","batchId":"b"}}`
)

func init() {
	conventions["deferred"] = []string{
		`{"id":"store error","steps":[` + openedRow + `,{"do":"set_caller","operation":"op","store":"error","hooks":null},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"expect":{"outcome":"error","row":{"content":""},"called":[]}},
		  {"do":"set_caller","operation":"op","store":"snapshot+durable","hooks":[` + afterHook + `]},{"do":"restart_worker"},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{"https://p.test/":{"json":{"decision":"deny","reason":"no"}}},
		  "expect":{"outcome":"published","row":{"content":"no","error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"no"},"success":false},"called":["https://p.test/"]}}]}`,
		`{"id":"store error of the approved operation","steps":[{"do":"open","row":"r","content":"","approvedFromOperation":"o","call":{"identifier":"i","apiName":"a","toolCallId":"c","arguments":"{}"}},
		  {"do":"set_caller","operation":"o","store":"error"},{"do":"set_caller","operation":"op","store":"snapshot","hooks":[` + afterHook + `]},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"expect":{"outcome":"error","row":{"content":""},"called":[]}}]}`,
		`{"id":"missing row","steps":[{"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"expect":{"outcome":"error","row":null,"called":[]}}]}`,
		`{"id":"cancelled before","steps":[` + openedRow + `,{"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"cancel":"before",
		  "expect":{"outcome":"cancelled","row":{"content":""},"called":[]}}]}`,
		`{"id":"cancelled at the environment","steps":[` + openedRow + `,{"do":"set_caller","operation":"op","store":"durable","hooks":[` + afterHook + `]},{"do":"set_env","hooks":[` + envHook + `]},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{"https://env.test/":{"fault":"hang"}},"cancel":"during:https://env.test/",
		  "expect":{"outcome":"cancelled","row":{"content":""},"called":["https://p.test/","https://env.test/"]}},
		  {"do":"set_env","hooks":[]},{"do":"set_caller","operation":"op","store":"durable","hooks":[]},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"","success":false},"responses":{},"expect":{"outcome":"published","row":{"content":"","success":false},"called":[]}},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"expect":{"outcome":"duplicate","row":{"content":"","success":false}}}]}`,
		`{"id":"no operation","steps":[` + openedRow + `,{"do":"set_env","hooks":[` + envHook + `]},
		  {"do":"complete","row":"r","result":{"content":"x","success":true},"responses":{"https://env.test/":{"status":500}},"expect_request":{"operationId":"","hookId":"server-env-webhook:afterToolCall"},
		  "expect":{"outcome":"published","row":{"content":"hook_control_error","error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"hook_control_error"},"success":false},"called":["https://env.test/"]}}]}`,
		`{"id":"the same operation once","steps":[{"do":"open","row":"r","content":"","approvedFromOperation":"op","call":{"identifier":"i","apiName":"a","toolCallId":"c","arguments":"[1]"}},
		  {"do":"set_caller","operation":"op","store":"snapshot","hooks":[` + afterHook + `,` + afterHook + `]},
		  {"do":"complete","row":"r","operation":"op","result":{"content":"x","success":true},"responses":{},"expect_request":{"args":{},"callIndex":1,"stepIndex":0},
		  "expect":{"outcome":"published","row":{"content":"x","success":true},"called":["https://p.test/","https://p.test/"]}}]}`,
		`{"id":"no call, control of another tool","steps":[{"do":"open","row":"r","content":"","call":{"identifier":"i","apiName":"a","arguments":"{}"}},
		  {"do":"set_env","hooks":[` + envHook + `]},{"do":"complete","row":"r","result":{"content":"x","success":true},"responses":{},"expect":{"outcome":"error","row":{"content":""},"called":[]}}]}`,
		`{"id":"denials race","steps":[` + openedRow + `,{"do":"set_caller","operation":"op","store":"durable","hooks":[` + afterHook + `]},
		  {"do":"race","row":"r","operation":"op","completions":[{"result":{"content":"a","success":true}},{"result":{"content":"b","success":true}},{"result":{"content":"c","success":false}}],
		  "responses":{"https://p.test/":{"json":{"decision":"deny","reason":"no"}}},
		  "expect":{"outcomes":["duplicate","published","duplicate"],"row_is_one_of":[{"content":"no","error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"no"},"success":false}]}}]}`,
		`{"id":"the state of a group","steps":[{"do":"open","row":"r","content":"","state":{"onComplete":"finish"},"call":{"identifier":"i","apiName":"a","toolCallId":"c","arguments":"{}"}},
		  {"do":"set_env","hooks":[` + envHook + `]},{"do":"complete","row":"r","operation":"op","preserveUsage":true,"result":{"content":"x","success":true,"state":{"totalTokens":5,"x":1}},
		  "responses":{"https://env.test/":{"fault":"truncated_body"}},"expect":{"outcome":"published","called":["https://env.test/"],
		  "row":{"content":"hook_control_error","error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"hook_control_error","totalTokens":5,"onComplete":"finish"},"success":false}}}]}`,
	}
	conventions["approval"] = []string{
		`{"id":"claim again","row":` + pendingR + `,"calls":[{"resolutionRequestId":"r1","status":"approved","content":"a","expect":{"outcome":"applied"}},
		  {"resolutionRequestId":"r1","status":"approved","content":"b","expect":{"outcome":"idempotent","row":{"content":""}}}]}`,
		`{"id":"nothing to publish","row":` + pendingR + `,"calls":[{"resolutionRequestId":"r1","status":"approved","expect":{"outcome":"applied"}},
		  {"resolutionRequestId":"r1","status":"approved","publishResult":true,"expect":{"outcome":"idempotent","row":{"content":""}}}]}`,
		`{"id":"restore","row":{"content":"","state":{"a":[1]},"error":{"e":1},"intervention":{"status":"pending","operationId":"op","batchId":"b","extra":{"k":1}}},
		  "calls":[{"resolutionRequestId":"r1","status":"approved","content":"a","expect":{"outcome":"applied","row":{"intervention":{"status":"approved","operationId":"op","batchId":"b","extra":{"k":1},"resolutionRequestId":"r1"}}}},
		  {"restore":true,"claimedResolutionRequestId":"r1","expect":{"outcome":"restored","row":{"content":"","state":{"a":[1]},"error":{"e":1},"intervention":{"status":"pending","operationId":"op","batchId":"b","extra":{"k":1}}}}},
		  {"restore":true,"claimedResolutionRequestId":"r1","expect":{"outcome":"skipped"}},
		  {"resolutionRequestId":"r2","status":"rejected","publishResult":true,"content":"no","expect":{"outcome":"applied","row":{"content":"no","intervention":{"status":"rejected","operationId":"op","batchId":"b","extra":{"k":1},"resolutionRequestId":"r2"}}}}]}`,
		`{"id":"a receipt taken back","row":` + pendingR + `,"calls":[{"resolutionRequestId":"r1","status":"rejected","publishResult":true,"content":"no","expect":{"outcome":"applied","row":{"content":"no","intervention":{"status":"rejected","operationId":"op","batchId":"b","resolutionRequestId":"r1"}}}},
		  {"restore":true,"claimedResolutionRequestId":"r1","expect":{"outcome":"applied","row":` + pendingR + `}}]}`,
		`{"id":"batch","rows":{"m1":` + pendingR + `,"m2":` + pendingR + `},"batch":{"members":["m1","m2"],"resolutionRequestId":"r1","status":"approved","content":"private"},
		  "expect":{"outcome":"applied","rows":{"m1":{"content":"","intervention":{"status":"approved","operationId":"op","batchId":"b","resolutionRequestId":"r1"}},"m2":{"content":"","intervention":{"status":"approved","operationId":"op","batchId":"b","resolutionRequestId":"r1"}}}}}`,
		`{"id":"unknown row","rows":{"m1":` + pendingR + `},"batch":{"members":["m1","m2"],"resolutionRequestId":"r1","status":"approved"},"expect":{"outcome":"error:unknown_row","unchanged":["m1"]}}`,
		`{"id":"duplicate row","rows":{"m1":` + pendingR + `},"batch":{"members":["m1","m1"],"resolutionRequestId":"r1","status":"approved"},"expect":{"outcome":"error:duplicate_row","unchanged":["m1"]}}`,
		`{"id":"another decision","rows":{"m1":` + pendingR + `,"m2":{"content":"","intervention":{"status":"rejected","operationId":"op","batchId":"b","resolutionRequestId":"r1"}}},
		  "batch":{"members":["m1","m2"],"resolutionRequestId":"r1","status":"approved"},"expect":{"outcome":"error:already_resolved","unchanged":["m1","m2"]}}`,
		`{"id":"claimed batch","rows":{"m1":{"content":"","intervention":{"status":"approved","operationId":"op","batchId":"b","resolutionRequestId":"r1"}}},
		  "batch":{"members":["m1"],"resolutionRequestId":"r1","status":"approved"},"expect":{"outcome":"idempotent","unchanged":["m1"]}}`,
	}
}

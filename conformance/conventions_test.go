package conformance_test

import (
	"encoding/json"
	"testing"
)

const onComplete = `"dispatch":{"type":"onComplete","event":{"agentId":"a","operationId":"op","reason":"done","status":"done","userId":"u"}}`

// conventions are what the formats allow and the project's cases do not use.
var conventions = map[string][]string{
	"dispatch": {
		`{"id":"bad entry, queue","runtime_mode":"queue","registered":[{"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a"}}],
		  "persisted":[{"id":"p","type":"nope","webhook":{"url":"https://rx.test/p"}}],` + onComplete + `,
		  "expect":{"calls":[],"error":{"name":"InvalidHookError"},"logged":[]}}`,
		`{"id":"bad entry, unused list","runtime_mode":"local","registered":[{"id":"a","type":"onComplete","handler":"$fn"}],
		  "persisted":[{"id":"p","type":"onComplete"}],` + onComplete + `,"expect":{"calls":[],"error":true,"logged":[]}}`,
		`{"id":"list of null","runtime_mode":"queue","persisted":null,` + onComplete + `,"expect":{"calls":[],"error":"invalid_hook","logged":[]}}`,
		`{"id":"empty registration","runtime_mode":"local","registered":[],"persisted":[{"id":"p","type":"onComplete","webhook":{"url":"https://rx.test/p"}}],
		  ` + onComplete + `,"expect":{"calls":[],"error":null,"logged":[]}}`,
		`{"id":"faults","runtime_mode":"queue","registered":[
		  {"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","timeout":0.1}},
		  {"id":"b","type":"onComplete","webhook":{"url":"https://rx.test/b"}},
		  {"id":"d","type":"onComplete","webhook":{"url":"https://other.test/d","fallback":"none","timeout":0.1}},
		  {"id":"e","type":"onComplete","webhook":{"url":"http://plain.test:8080/e"}}],` + onComplete + `,
		  "outcomes":{"a":{"fetch":"timeout"},"b":{"fetch":{"fault":"connection_reset"}},"d":{"fetch":"dns"},"e":{"fetch":{"status":503,"json":{"secret":"of the receiver"},"delay_ms":1}}},
		  "expect":{"calls":["a:fetch","b:fetch","d:fetch","e:fetch"],"logged":["a","b","d","e"],
		  "error":{"name":"CriticalHookDeliveryError","hookId":"d","message":"Critical webhook delivery failed: d"}}}`,
		`{"id":"endless failure","runtime_mode":"local","registered":[{"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a"}}],` + onComplete + `,
		  "outcomes":{"a":{"fetch":{"status":500,"stream":"endless"}}},"expect":{"calls":["a:fetch"],"error":null,"logged":["a"]}}`,
		`{"id":"reserved id","runtime_mode":"queue","registered":null,"persisted":[{"id":"server-env-webhook:onComplete","type":"nope"}],
		  "env_hooks":[{"id":"server-env-webhook:onComplete","type":"onComplete","webhook":{"url":"/in","fallback":"none","headers":{"X-K":"${K}"},"allowedEnvVars":["K"]}}],
		  "env":{"INTERNAL_APP_URL":"http://127.0.0.1:3210"},` + onComplete + `,
		  "expect":{"calls":[],"error":{"name":"CriticalHookDeliveryError","hookId":"server-env-webhook:onComplete"},"logged":["server-env-webhook:onComplete"]}}`,
		`{"id":"no token, no fallback","runtime_mode":"queue","registered":[{"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","delivery":"qstash","fallback":"none"}}],
		  "qstash_token":false,` + onComplete + `,"expect":{"calls":[],"error":{"name":"CriticalHookDeliveryError","hookId":"a"},"logged":["a"]}}`,
		`{"id":"publish refused, no fallback","runtime_mode":"queue","registered":[
		  {"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","delivery":"qstash","fallback":"none"}},
		  {"id":"b","type":"onComplete","webhook":{"url":"https://rx.test/b","delivery":"qstash","fallback":"none"}}],"qstash_token":true,` + onComplete + `,
		  "outcomes":{"a":{"qstash":{"status":400,"json":{"error":"secret of QStash"}}}},
		  "expect":{"calls":["a:qstash","b:qstash"],"error":{"name":"CriticalHookDeliveryError","hookId":"a"},"logged":["a"]}}`,
		`{"id":"publish not sent, or without an id","runtime_mode":"local","registered":[
		  {"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","delivery":"qstash"}},
		  {"id":"b","type":"onComplete","webhook":{"url":"https://rx.test/b","delivery":"qstash"}},
		  {"id":"d","type":"onComplete","webhook":{"url":"https://rx.test/d","delivery":"qstash"}},
		  {"id":"e","type":"onComplete","webhook":{"url":"https://rx.test/e","delivery":"qstash"}}],"qstash_token":true,` + onComplete + `,
		  "outcomes":{"a":{"qstash":"dns"},"b":{"qstash":{"status":200,"json":{}}},"d":{"qstash":"network_error"},"e":{"qstash":{"status":502,"text":"<html>"}}},
		  "expect":{"calls":["a:qstash","a:fetch","b:qstash","b:fetch","d:qstash","d:fetch","e:qstash","e:fetch"],"error":null,"logged":["a","b","d","e"]}}`,
		`{"id":"publish unknown, queue","runtime_mode":"queue","registered":[
		  {"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","delivery":"qstash"}},
		  {"id":"b","type":"onComplete","webhook":{"url":"https://rx.test/b","delivery":"qstash","fallback":"none"}}],"qstash_token":true,` + onComplete + `,
		  "outcomes":{"a":{"qstash":"timeout"},"b":{"qstash":"truncated"}},
		  "expect":{"calls":["a:qstash","a:qstash","b:qstash","b:qstash"],"error":{"name":"CriticalHookDeliveryError","hookId":"b"},"logged":["a","b"]}}`,
		`{"id":"publish unknown, local","runtime_mode":"local","registered":[
		  {"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a","delivery":"qstash"}}],"qstash_token":true,` + onComplete + `,
		  "outcomes":{"a":{"qstash":"connection_reset"}},"expect":{"calls":["a:qstash","a:qstash","a:fetch"],"error":null,"logged":["a"]}}`,
		`{"id":"unregistered queue","runtime_mode":"queue","unregister_first":true,"registered":[{"id":"a","type":"onComplete","webhook":{"url":"https://rx.test/a"}}],
		  ` + onComplete + `,"expect":{"calls":[],"error":null,"logged":[]}}`,
		`{"id":"matcher","runtime_mode":"queue","registered":[
		  {"id":"a","type":"onToolCallError","matcher":"^mail/","webhook":{"url":"https://rx.test/a"}},
		  {"id":"b","type":"onToolCallError","matcher":"^shell/(?!x)","webhook":{"url":"https://rx.test/b"}}],
		  "dispatch":{"type":"onToolCallError","event":{"apiName":"run","identifier":"shell","args":{},"assistantMessageId":"m","callIndex":1,"executor":"server","operationId":"op","stepIndex":0,"toolCallId":"c1","error":"boom"}},
		  "expect":{"calls":["b:fetch"],"error":null,"logged":[]}}`,
	},
	"mock": {
		`{"id":"queue","runtime_mode":"queue","hooks":[{"id":"a","type":"beforeToolCall","handler":[{"mock":{"content":"one","success":true}}]},
		  {"id":"w","type":"beforeToolCall","webhook":{"url":"https://rx.test/w"}}],"expect":{"result":null,"called":[],"mock_returns":[],"webhooks_from_this_call":[]}}`,
		`{"id":"late and twice","hooks":[{"id":"a","type":"beforeToolCall","handler":[{"delay_ms":2},{"mock":{"content":"one","success":true,"state":{"k":1}}},{"mock":{"content":"two","success":true}}]}],
		  "expect":{"result":{"isMocked":true,"result":{"content":"one","success":true,"state":{"k":1}}},"called":["a"],"mock_returns":[true,false],"logged":[]}}`,
		`{"id":"another tool","tool":{"identifier":"mail","apiName":"send"},"hooks":[{"id":"a","type":"beforeToolCall","matcher":"^shell/","handler":[{"mock":{"content":"one","success":true}}]}],
		  "expect":{"result":null,"called":[]}}`,
	},
	"email_cache": {
		`{"id":"shared","steps":[{"at_s":0,"concurrent":3,"user":"u1","expect_emails":["u1@x.test","u1@x.test","u1@x.test"],"expect_lookups":1},
		  {"at_s":299.999,"user":"u1","expect_email":"u1@x.test","expect_lookup":false},{"at_s":300,"user":"u1","expect_email":"u1@x.test","expect_lookup":true}]}`,
		`{"id":"shared and missing","steps":[{"at_s":0,"concurrent":2,"user":"ghost","expect_emails":[null,null],"expect_lookups":1}]}`,
	},
	"payload": {
		`{"id":"cancelled before","mode":"notification","hookId":"h","hookType":"onComplete","event":{"userId":"u"},"webhook":{},"emails":{"u":"u@x.test"},
		  "cancelled":"before","expect":null,"expect_lookups":[]}`,
		`{"id":"cancelled during","mode":"notification","hookId":"h","hookType":"onComplete","event":{"userId":"u"},"webhook":{},"emails":{"u":"u@x.test"},
		  "cancelled":"during_lookup","expect":null,"expect_lookups":["u"]}`,
		`{"id":"environment","mode":"notification","hookId":"server-env-webhook:onError","hookType":"onError","event":{"a":1},"webhook":{},
		  "expect":{"a":1,"hookId":"server-env-webhook:onError","hookType":"onError"}}`,
		`{"id":"numbers","mode":"notification","hookId":"h","hookType":"onComplete","event":{"cost":12345678901234567890.123456789},"webhook":{},"emails":{},
		  "expect":{"cost":12345678901234567890.123456789,"hookId":"h","hookType":"onComplete"}}`,
	},
	"env_hooks": {
		`{"id":"persisted","env":{"AGENT_HOOK_WEBHOOK_URL":"https://gate.test/","AGENT_HOOK_WEBHOOK_TOKEN":"tok-123","AGENT_HOOK_WEBHOOK_EVENTS":"onComplete"},
		  "caller_hooks":[{"id":"f","type":"onComplete","handler":"$fn"},{"id":"w","type":"onComplete","webhook":{"url":"https://c.test/"}},
		  {"id":"server-env-webhook:onError","type":"onError","webhook":{"url":"https://c.test/"}}],
		  "must_not_contain":["tok-123"],"expect":{"persisted_ids":["w"],"effective_ids":["f","w","server-env-webhook:onComplete"]}}`,
		`{"id":"controls","env":{"AGENT_HOOK_WEBHOOK_URL":"https://gate.test/","AGENT_HOOK_WEBHOOK_TOKEN":"tok-123","AGENT_HOOK_WEBHOOK_EVENTS":"beforeToolCall,afterToolCall",
		  "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING":"toolCall","AGENT_HOOK_WEBHOOK_ON_ERROR":"block"},
		  "caller_hooks":[{"id":"c","type":"beforeToolCall","webhook":{"url":"https://c.test/","responseHandling":"toolCall"}},
		  {"id":"server-env-webhook:beforeToolCall","type":"nope"},{"id":"n","type":"afterToolCall","webhook":{"url":"https://n.test/"}}],
		  "expect":{"effective_ids":["c","n","server-env-webhook:beforeToolCall","server-env-webhook:afterToolCall"]}}`,
	},
	"control_response": {
		`{"id":"exactly the limit","hookType":"beforeToolCall","onError":"block","response":{"status":200,"body":{"parts":[{"utf8":"{\"decision\":\"deny\",\"reason\":\""},{"repeat":"x","count":65505},{"utf8":"\"}"}]}},
		  "classification":"deny","expect":{"status":"blocked","reason_repeat":{"text":"x","count":65505}}}`,
		`{"id":"one more","hookType":"beforeToolCall","onError":"block","response":{"status":200,"body":{"parts":[{"utf8":"{\"decision\":\"deny\",\"reason\":\""},{"repeat":"x","count":65507},{"utf8":"\"}"}]}},
		  "classification":"error:response_too_large","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"gzip","hookType":"afterToolCall","response":{"status":200,"headers":{"Content-Encoding":"gzip"},"body":{"gzip":{"utf8":"{\"decision\":\"deny\"}"}}},
		  "classification":"deny","expect":{"status":"blocked","reason":"Blocked by afterToolCall hook."}}`,
		`{"id":"gzip bomb","hookType":"afterToolCall","onError":"block","response":{"status":200,"headers":{"Content-Encoding":"gzip"},"body":{"gzip":{"repeat":" ","count":1000000}}},
		  "classification":"error:response_too_large","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"large by its word","hookType":"beforeToolCall","onError":"block","response":{"status":200,"headers":{"Content-Length":"70000"},"body":{"utf8":"{\"decision\":\"allow\"}"}},
		  "classification":"error:response_too_large","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"endless","hookType":"beforeToolCall","onError":"block","response":{"status":200,"stream":"endless"},
		  "classification":"error:response_too_large","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"switched protocols","hookType":"beforeToolCall","response":{"status":101},"classification":"error:network_error","expect":{"status":"allow"}}`,
		`{"id":"no such name","hookType":"beforeToolCall","onError":"block","fault":"dns_failure","classification":"error:network_error","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"no connection","hookType":"beforeToolCall","onError":"block","fault":"timeout_connect","classification":"error:timeout","expect":{"status":"blocked","reason":"hook_control_error"}}`,
		`{"id":"no variable","hookType":"beforeToolCall","fault":"unresolvable_header","classification":"error:configuration","expect":{"status":"allow"}}`,
		`{"id":"cancelled while reading","hookType":"afterToolCall","onError":"block","fault":"cancelled_mid_body","classification":"cancelled","expect":{"status":"cancelled"}}`,
		`{"id":"a failure after the cancellation","hookType":"afterToolCall","onError":"block","fault":"cancelled_then_error","classification":"cancelled","expect":{"status":"cancelled"}}`,
	},
	"control_chain": {
		`{"id":"environment last","phase":"afterToolCall","tool":{"identifier":"shell","apiName":"run"},"runtime_mode":"queue","cold_worker":true,
		  "hooks":[{"id":"a","type":"afterToolCall","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall"}}],
		  "env_hooks":[{"id":"server-env-webhook:afterToolCall","type":"afterToolCall","webhook":{"url":"https://gate.test/","responseHandling":"toolCall","onError":"block"}}],
		  "responses":{"a":{"status":200,"text":"noted","delay_ms":5},"server-env-webhook:afterToolCall":{"fault":"truncated_body"}},
		  "expect":{"status":"blocked","reason":"hook_control_error","called":["a","server-env-webhook:afterToolCall"]}}`,
		`{"id":"cancelled in the queue","phase":"beforeToolCall","tool":{"identifier":"shell","apiName":"run"},"runtime_mode":"queue","hooks":[
		  {"id":"a","type":"beforeToolCall","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall","onError":"block"}}],
		  "responses":{"a":{"fault":"hang"}},"cancel":"during:a","expect":{"status":"cancelled","called":["a"]}}`,
		`{"id":"a tool without a name","phase":"beforeToolCall","tool":{"identifier":"shell"},"hooks":[
		  {"id":"a","type":"beforeToolCall","matcher":"shell","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall"}},
		  {"id":"b","type":"beforeToolCall","matcher":"*","webhook":{"url":"https://policy.test/b","responseHandling":"toolCall"}}],
		  "responses":{"a":{"json":{"decision":"deny"}},"b":{"status":200,"json":{"decision":"allow"}}},"expect":{"status":"allow","called":["b"]}}`,
		`{"id":"too slow","phase":"beforeToolCall","tool":{"identifier":"shell","apiName":"run"},"hooks":[
		  {"id":"a","type":"beforeToolCall","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall","timeout":1}},
		  {"id":"b","type":"beforeToolCall","webhook":{"url":"/b","responseHandling":"toolCall"}}],"env":{"APP_URL":"https://app.test"},
		  "responses":{"a":{"status":200,"json":{"decision":"deny"},"delay_ms":60000},"b":{"status":200,"json":{"decision":"allow"}}},"expect":{"status":"allow","called":["a","b"]}}`,
		`{"id":"a bad entry","phase":"beforeToolCall","tool":{"identifier":"shell","apiName":"run"},"cold_worker":true,"hooks":[
		  {"id":"a","type":"beforeToolCall","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall"}},{"id":"x","type":"onError"}],
		  "responses":{},"expect":{"error":true,"called":[]}}`,
	},
	"matcher": {
		`{"id":"no strings","pattern":"x","identifier":1,"apiName":null,"match":false}`,
	},
	"validation": {
		`{"id":"no list","via":"register","hooks":null,"expect":{"accepted":false,"reason":"invalid_hook"}}`,
		`{"id":"null","via":"restore","hooks":[{"id":"a","type":"onError","webhook":{"url":"https://x.test/","timeout":null}}],"expect":{"accepted":false,"reason":"invalid_timeout"}}`,
		`{"id":"no function","via":"register","hooks":[{"id":"a","type":"onError","handler":42}],"prior_hooks":[{"id":"p","type":"onError","handler":"$fn"}],
		  "expect":{"accepted":false,"reason":"invalid_handler","stored":["p"]}}`,
	},
	"headers": {
		`{"id":"latin","headers":{"X-A":"${K}","Accept":"text/plain"},"allowedEnvVars":["K"],"env":{"K":"é"},
		  "expect":{"headers":{"content-type":"application/json","x-a":"é","accept":"text/plain"}}}`,
	},
	"url": {
		`{"id":"foreign origin","url":"https://rx.test/x","env":{"APP_URL":"https://app.test","INTERNAL_APP_URL":"http://127.0.0.1:3210","VERCEL_AUTOMATION_BYPASS_SECRET":"byp"},"expect":{"qstash_bypass_header":false}}`,
		`{"id":"own port","url":"https://app.test:443/x?a=%2F#z","env":{"APP_URL":"https://APP.test/base","VERCEL_AUTOMATION_BYPASS_SECRET":"byp"},
		  "expect":{"qstash_bypass_header":true,"qstash":"https://app.test/x?a=%2F#z"}}`,
		`{"id":"no secret","url":"/x","env":{"APP_URL":"https://app.test","VERCEL_AUTOMATION_BYPASS_SECRET":""},"expect":{"qstash_bypass_header":false}}`,
		`{"id":"bare address","url":"https://[::1]:8443/a b?q=ü#f","env":{},"timeout":0.5,
		  "expect":{"fetch":"https://[::1]:8443/a%20b?q=%C3%BC#f","qstash":"https://[::1]:8443/a%20b?q=%C3%BC#f","timeout_ms":500}}`,
	},
}

// TestConventions runs cases that other files of the format may hold.
func TestConventions(t *testing.T) {
	lab := newLab(t)
	for file, cases := range conventions {
		t.Run(file, func(t *testing.T) {
			for _, raw := range cases {
				t.Run(caseID(json.RawMessage(raw)), func(t *testing.T) {
					t.Parallel()
					v := execute(t, lab, file, json.RawMessage(raw))
					v.report(t)
					if v.unsupported != "" {
						t.Errorf("unsupported: %s", v.unsupported)
					}
				})
			}
		})
	}
}

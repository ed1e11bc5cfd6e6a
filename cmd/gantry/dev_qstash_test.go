package main

import "testing"

// A hook that asks for QStash is published to the imitation, which delivers it.
func TestDevDeliversThroughQStash(t *testing.T) {
	t.Parallel()
	out := startDev(t, "--no-demo")
	out.await(t, "Ctrl-C ends it.", 1)
	api := apiAddress.FindStringSubmatch(out.String())[1]
	receiver := receiverAddress.FindStringSubmatch(out.String())[1]
	fetchCommand(t, []string{
		"-X", "PUT", api + "/v1/operations/my-run/hooks", "-H", "content-type: application/json",
		"-d", `[{"id":"relayed","type":"afterStep","webhook":{"url":"` + receiver + `/relayed","delivery":"qstash","fallback":"none"}}]`,
	})
	answer := fetchCommand(t, []string{
		api + "/v1/operations/my-run/events?await=10s&awaitMode=final", "-H", "content-type: application/json",
		"-d", `{"type":"afterStep","event":{"agentId":"me","userId":"me","stepIndex":0}}`,
	})
	if answer["settled"] != true {
		t.Fatalf("the event came to %v", answer)
	}
	out.await(t, "QStash delivered 204", 1)
	contains(t, out.String(), "→ /relayed", "→ relayed")
}

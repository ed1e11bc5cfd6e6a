// The official JavaScript client and receiver against gantry qstash dev, which
// the environment names (QSTASH_URL and the others, as the command prints them).
import assert from "node:assert/strict";
import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, before, beforeEach, describe, test } from "node:test";

import {
  Client, QstashDailyRatelimitError, QstashError, QstashRatelimitError, Receiver, SignatureError,
} from "@upstash/qstash";
import { base64url, SignJWT } from "jose";

const { QSTASH_URL, QSTASH_TOKEN, QSTASH_CURRENT_SIGNING_KEY, QSTASH_NEXT_SIGNING_KEY, SIGNED_FILE } = process.env;
const query = "?a=1&b=%2F";

// inbox is an HTTP server that keeps requests until the test takes them.
class Inbox {
  requests = [];
  waiting = [];
  answer = () => ({ status: 200 });

  async open() {
    this.server = createServer((req, res) => {
      const chunks = [];
      req.on("data", (chunk) => chunks.push(chunk));
      req.on("end", () => {
        const got = { method: req.method, path: req.url, headers: req.headers, body: Buffer.concat(chunks).toString() };
        const { status, headers } = this.answer(got);
        res.writeHead(status, headers).end();
        const waiter = this.waiting.shift();
        if (waiter) waiter(got);
        else this.requests.push(got);
      });
    });
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  next() {
    const got = this.requests.shift();
    return got ? Promise.resolve(got) : new Promise((resolve) => this.waiting.push(resolve));
  }

  close() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

const inbox = new Inbox();
const client = new Client();
const receiver = new Receiver();

before(() => inbox.open());
after(() => inbox.close());
beforeEach(() => {
  assert.equal(inbox.requests.length, 0, "a request of the test before was not expected");
  inbox.answer = () => ({ status: 200 });
});

const verify = (got, url = inbox.url + got.path, clockTolerance = 0) =>
  receiver.verify({
    signature: got.headers["upstash-signature"], body: got.body, url, clockTolerance, upstashRegion: got.headers["upstash-region"],
  });

const faults = async (...list) => {
  const headers = { Authorization: `Bearer ${QSTASH_TOKEN}` };
  const response = await fetch(`${QSTASH_URL}/_faults`, { method: "POST", headers, body: JSON.stringify(list) });
  assert.equal(response.status, 200);
};

// until asks again until there is an answer; the server is told to hurry.
const until = async (ask) => {
  for (let i = 0; i < 2000; i++) {
    const got = await ask();
    if (got) return got;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.fail("it did not happen");
};

describe("publish", () => {
  test("JSON, with a query in the URL", async () => {
    const { messageId } = await client.publishJSON({
      url: inbox.url + "/hook" + query, body: { n: 1 }, headers: { "X-Own": "yes", Authorization: "Bearer theirs" },
      retries: 2, timeout: 5, label: ["one", "two"], flowControl: { key: "k", parallelism: 3, rate: 100, period: "1m" },
    });
    const got = await inbox.next();
    assert.equal(got.method, "POST");
    assert.equal(got.path, "/hook" + query);
    assert.equal(got.body, '{"n":1}');
    assert.equal(got.headers["content-type"], "application/json");
    assert.equal(got.headers["x-own"], "yes");
    assert.equal(got.headers.authorization, "Bearer theirs");
    assert.equal(got.headers["upstash-message-id"], messageId);
    assert.equal(got.headers["upstash-retried"], "0");
    assert.equal(got.headers["upstash-telemetry-sdk"], undefined);
    assert.equal(await verify(got), true);
    for (const other of ["/hook", "/hook?a=1&b=/", "/hook/" + query]) {
      await assert.rejects(verify(got, inbox.url + other), SignatureError);
    }
    await assert.rejects(verify({ ...got, body: '{"n": 1}' }), SignatureError);
    const flow = await client.flowControl.get("k");
    assert.equal(flow.parallelismMax, 3);
    assert.equal(flow.ratePeriod, 60);
  });

  test("text, another method, and a URL that needs no encoding", async () => {
    await client.publish({ url: inbox.url + "/a/b%20c/é", body: "raw", method: "PUT" });
    const got = await inbox.next();
    assert.equal(got.method, "PUT");
    assert.equal(got.headers["content-type"], "text/plain;charset=UTF-8");
    assert.equal(await verify(got), true);
  });

  test("later, looked at and cancelled", async () => {
    const published = [];
    for (const label of ["a", "b", "c", "d"]) {
      published.push(await client.publish({ url: inbox.url, body: label, notBefore: 4_000_000_000, label, callback: inbox.url + "/cb" }));
    }
    const [a, b, c] = published.map((p) => p.messageId);
    const message = await client.messages.get(a);
    assert.equal(message.url, inbox.url);
    assert.equal(message.body, "a");
    assert.equal(message.notBefore, 4_000_000_000_000);
    assert.equal(message.callback, inbox.url + "/cb");
    assert.deepEqual(message.labels, ["a"]);
    assert.deepEqual(await client.messages.cancel(a), { cancelled: 1 });
    await assert.rejects(client.messages.get(a), (error) => error instanceof QstashError && error.status === 404);
    assert.deepEqual(await client.messages.cancel([b, "msg_none"]), { cancelled: 1 });
    assert.deepEqual(await client.messages.cancel({ filter: { label: ["b", "c"] } }), { cancelled: 1 });
    await assert.rejects(client.messages.get(c), { status: 404 });
    assert.deepEqual(await client.messages.cancel({ all: true }), { cancelled: 1 });
  });

  test("twice with one deduplication id", async () => {
    const request = { url: inbox.url, body: "x", deduplicationId: "once" };
    const first = await client.publish(request);
    const second = await client.publish(request);
    assert.equal(second.messageId, first.messageId);
    assert.equal(second.deduplicated, true);
    await inbox.next();
  });

  test("to a URL group", async () => {
    await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: inbox.url + "/1", name: "one" }, { url: inbox.url + "/2" }] });
    const results = await client.publishJSON({ urlGroup: "group", body: {} });
    assert.deepEqual(results.map((r) => r.url), [inbox.url + "/1", inbox.url + "/2"]);
    for (const got of [await inbox.next(), await inbox.next()]) {
      assert.equal(got.headers["upstash-topic-name"], "group");
      assert.equal(await verify(got), true);
    }
    await client.urlGroups.removeEndpoints({ name: "group", endpoints: [{ name: "one" }] });
    assert.deepEqual((await client.urlGroups.get("group")).endpoints, [{ url: inbox.url + "/2" }]);
    assert.equal((await client.urlGroups.list()).length, 1);
    await client.urlGroups.delete("group");
    await assert.rejects(client.urlGroups.get("group"), { status: 404 });
  });

  test("with a callback", async () => {
    const { messageId } = await client.publish({ url: inbox.url + "/it", body: "x", callback: inbox.url + "/callback" });
    await inbox.next();
    const got = await inbox.next();
    assert.equal(await verify(got), true);
    const report = JSON.parse(got.body);
    assert.equal(report.sourceMessageId, messageId);
    assert.equal(report.status, 200);
    assert.equal(atob(report.sourceBody), "x");
  });
});

describe("batch", () => {
  test("has a result for each item, in order", async () => {
    const results = await client.batchJSON([
      { url: inbox.url + "/1" + query, body: { i: 1 }, headers: { "X-Item": "1" } },
      { url: "ftp://nowhere.test", body: {} },
      { url: inbox.url + "/3", body: { i: 3 }, queueName: "batch", retries: 0 },
    ]);
    assert.equal(results.length, 3);
    assert.match(results[0].messageId, /^msg_/);
    assert.match(results[1].error, /invalid scheme/);
    const got = Object.fromEntries([await inbox.next(), await inbox.next()].map((r) => [r.headers["upstash-message-id"], r]));
    assert.equal(got[results[0].messageId].path, "/1" + query);
    assert.equal(got[results[0].messageId].headers["x-item"], "1");
    assert.equal(got[results[2].messageId].body, '{"i":3}');
    for (const request of Object.values(got)) assert.equal(await verify(request), true);
  });

  test("can be accepted in part", async () => {
    await faults({ kind: "partial-batch", times: 1 });
    const [first, second] = await client.batch([{ url: inbox.url, body: "1" }, { url: inbox.url, body: "2" }]);
    assert.match(first.messageId, /^msg_/);
    assert.equal(second.messageId, undefined);
    assert.equal((await inbox.next()).body, "1");
  });
});

test("a queue keeps the order while its head is retried", async () => {
  const queue = client.queue({ queueName: "fifo" });
  await queue.upsert({ parallelism: 1, paused: true });
  inbox.answer = (got) => ({ status: got.body === '{"i":0}' && got.headers["upstash-retried"] !== "2" ? 500 : 200 });
  for (let i = 0; i < 3; i++) await queue.enqueueJSON({ url: inbox.url + "/q" + query, body: { i } });
  const shown = await queue.get();
  assert.deepEqual([shown.name, shown.parallelism, shown.paused, shown.lag], ["fifo", 1, true, 3]);
  await queue.resume();
  const order = [];
  for (let i = 0; i < 5; i++) {
    const got = await inbox.next();
    assert.equal(await verify(got), true);
    order.push(JSON.parse(got.body).i);
  }
  assert.deepEqual(order, [0, 0, 0, 1, 2]);
  await queue.pause();
  assert.equal((await queue.get()).paused, true);
  assert.ok((await queue.list()).some((q) => q.name === "fifo"));
  await queue.delete();
  await assert.rejects(queue.get(), { status: 404 });
});

test("what always fails goes to the DLQ, and from there again", async () => {
  inbox.answer = () => ({ status: 503 });
  const url = inbox.url + "/dead";
  const { messageId } = await client.publish({ url, body: "x", retries: 2, retryDelay: "1000 * (1 + retried)" });
  for (const retried of ["0", "1", "2"]) assert.equal((await inbox.next()).headers["upstash-retried"], retried);
  const [entry] = await until(async () => {
    const { messages } = await client.dlq.listMessages({ filter: { url, responseStatus: 503 } });
    return messages.length === 1 && messages;
  });
  assert.equal(entry.messageId, messageId);
  assert.equal(entry.retryDelayExpression, "1000 * (1 + retried)");

  inbox.answer = () => ({ status: 489, headers: { "Upstash-NonRetryable-Error": "true" } });
  const { responses } = await client.dlq.retry(entry.dlqId);
  assert.equal(responses.length, 1);
  assert.notEqual(responses[0].messageId, messageId);
  assert.equal((await inbox.next()).headers["upstash-message-id"], responses[0].messageId);
  const again = await until(async () => (await client.dlq.listMessages({ filter: { url } })).messages[0]);
  assert.equal(again.responseStatus, 489, "489 with the header is not retried");
  assert.deepEqual(await client.dlq.delete(again.dlqId), { deleted: 1 });
  assert.equal((await client.dlq.delete({ all: true })).deleted, 0);

  const { events } = await client.events({ filter: { messageId } });
  assert.deepEqual(events.map((e) => e.state).reverse(),
    ["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE", "ERROR", "RETRY", "ACTIVE", "ERROR", "FAILED"]);
  assert.equal((await client.logs({ messageIds: [messageId], count: 3 })).logs.length, 3);
});

describe("errors", () => {
  const refused = (kind, check) => async () => {
    await faults({ kind, times: 1 });
    await assert.rejects(client.publish({ url: inbox.url, body: "x" }), check);
  };
  test("burst limit", refused("429-burst", (error) => error instanceof QstashRatelimitError && error.remaining === "0"));
  test("daily limit", refused("429-daily", (error) => error instanceof QstashDailyRatelimitError && error.limit === "1000"));
  test("limit of the plan", refused("412", { status: 412 }));
  test("server error", refused("500", { status: 500 }));
  test("HTML of a proxy", refused("502-html", { status: 502, message: /<html>/ }));
  test("loopback", refused("loopback", { status: 400, message: /resolves to a loopback address/ }));
  test("scheme", async () => {
    await assert.rejects(client.publish({ url: "nowhere.test/x" }), { status: 400, message: /invalid scheme, add http/ });
  });
  test("deduplication id", async () => {
    await assert.rejects(client.publish({ url: inbox.url, deduplicationId: "a:b" }), { message: /cannot contain ':'/ });
  });
  test("token", async () => {
    const other = new Client({ token: "other", baseUrl: QSTASH_URL });
    await assert.rejects(other.publish({ url: inbox.url }), { status: 401, message: /unable to authenticate: invalid token/ });
  });
  test("a connection that breaks after the server accepted", async () => {
    await faults({ kind: "dropped", times: 1 });
    await assert.rejects(new Client({ retry: false }).publish({ url: inbox.url + "/d", body: "x" }));
    assert.equal(await verify(await inbox.next()), true);
  });
});

describe("signatures", () => {
  for (const kind of ["sign-next", "unpadded-hash"]) {
    test(`${kind} is accepted`, async () => {
      await faults({ kind, times: 1 });
      await client.publish({ url: inbox.url + "/s", body: "x" });
      assert.equal(await verify(await inbox.next()), true);
    });
  }
  for (const kind of ["unknown-key", "expired", "future-nbf", "wrong-sub"]) {
    test(`${kind} is refused`, async () => {
      await faults({ kind, times: 1 });
      await client.publish({ url: inbox.url + "/s", body: "x" });
      await assert.rejects(verify(await inbox.next(), undefined, 60), SignatureError);
    });
  }
});

test("QSTASH_DEV attaches without a download", async () => {
  process.env.QSTASH_DEV_PORT = new URL(QSTASH_URL).port;
  const attached = new Client({ devMode: true });
  await attached.publishJSON({ url: inbox.url + "/dev", body: {} });
  const got = await inbox.next();
  assert.equal(await new Receiver({ devMode: true }).verify({
    signature: got.headers["upstash-signature"], body: got.body, url: inbox.url + "/dev",
  }), true);
});

// What our own endpoint must accept is made with the client's own JWT library and
// judged by the Go test that runs this one.
test("signs for the endpoint", async () => {
  for (const [key, name] of [[QSTASH_CURRENT_SIGNING_KEY, "current"], [QSTASH_NEXT_SIGNING_KEY, "next"]]) {
    for (const body of ["", '{"n":1}', "é\u2028"]) {
      const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(body)));
      const url = "https://gantry.test/v1/qstash/tasks" + query;
      const signature = await new SignJWT({ body: base64url.encode(hash) })
        .setProtectedHeader({ alg: "HS256", typ: "JWT" }).setIssuer("Upstash").setSubject(url).setIssuedAt()
        .setNotBefore(0).setExpirationTime("5m").setJti("jwt_test").sign(new TextEncoder().encode(key));
      assert.equal(await receiver.verify({ signature, body, url }), true);
      await appendFile(SIGNED_FILE, JSON.stringify({ key: name, url, body, signature }) + "\n");
    }
  }
});

// The inspector's reader.js: exact at any cut, and no failure that looks like an answer.
import assert from "node:assert/strict";
import { test } from "node:test";

import { reader } from "./load.mjs";

const { ChatError, ChatTruncatedError, EventStreamParser, readAnswer, readEvents } = reader;
const encode = (text) => new TextEncoder().encode(text);
const HEADERS = { "content-type": "text/event-stream; charset=utf-8" };
const ROUTING = { type: "routing", agentId: "voicing" };
const routing = `data: ${JSON.stringify(ROUTING)}\n\n`;

/** A response whose body comes in the given packets; `end` says how it ends. */
function respond(packets, { end = "close", status = 200, headers = HEADERS } = {}) {
  const state = { cancelled: false };
  const queue = packets.map((packet) => (typeof packet === "string" ? encode(packet) : packet));
  const body = new ReadableStream({
    pull(controller) {
      const packet = queue.shift();
      if (packet) controller.enqueue(packet);
      else if (end === "close") controller.close();
      else if (end === "break") controller.error(new TypeError("network error"));
      else return new Promise(() => {}); // "hang": the host does not hang up
    },
    cancel() {
      state.cancelled = true;
    },
  });
  return { response: new Response(body, { status, headers }), state };
}

/** Cut bytes into packets of `size`. */
function packets(bytes, size) {
  const all = [];
  for (let at = 0; at < bytes.length; at += size) all.push(bytes.subarray(at, at + size));
  return all;
}

const answerOf = (list, options) => readAnswer(respond(list).response, options);

/** A small seeded generator (mulberry32): the same texts in every run. */
function seeded(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Two data lines under CRLF, a CR alone, a BOM, half a comment: each place where a cut has gone wrong somewhere.
const STREAM = encode(
  "\ufeffid: 7\r\nevent: note\r\ndata: première\r\ndata: ligne\r\n\r\n: ping\r\rdata\rdata: 🎸\r\rretry: 1500\n" +
    "retry: 1e3\nid: a\0b\ndata:  two spaces \n\ndata:no space\nother: x\n\n\n\ndata: \n\nid\ndata: last\n\ndata: never ended",
);
const EVENTS = [
  { type: "note", data: "première\nligne", lastEventId: "7" },
  { type: "message", data: "\n🎸", lastEventId: "7" },
  { type: "message", data: " two spaces ", lastEventId: "7" },
  { type: "message", data: "no space", lastEventId: "7" },
  { type: "message", data: "", lastEventId: "7" },
  { type: "message", data: "last", lastEventId: "" },
];

function parse(...list) {
  const comments = [];
  const parser = new EventStreamParser({ onComment: (text) => comments.push(text) });
  const events = list.flatMap((packet) => parser.feed(packet));
  return { events, comments, retry: parser.retry };
}

test("a cut at any byte changes nothing", () => {
  const want = { events: EVENTS, comments: ["ping"], retry: 1500 };
  for (let cut = 0; cut <= STREAM.length; cut++) {
    assert.deepEqual(parse(STREAM.subarray(0, cut), STREAM.subarray(cut)), want, `cut at ${cut}`);
  }
  assert.deepEqual(parse(...packets(STREAM, 1)), want);
});

test("readEvents gives the events of a body, at one byte a packet", async () => {
  const events = [];
  for await (const event of readEvents(respond(packets(STREAM, 1)).response)) events.push(event);
  assert.deepEqual(events, EVENTS);
});

test("random texts come back exactly, at random cuts and line ends", async () => {
  const random = seeded(746);
  const below = (n) => Math.floor(random() * n);
  const pieces = ["a", " ", "\n", "\n\n", "🎸", "é", "[DONE]", "data: ", ": c", "{", '{"error":"x"', "\ufeff", "\u2028", "\t", "event: error"];
  for (let round = 0; round < 400; round++) {
    const chunks = Array.from({ length: below(6) }, () =>
      Array.from({ length: 1 + below(8) }, () => pieces[below(pieces.length)]).join(""),
    ).filter((chunk) => chunk !== "[DONE]");
    const end = ["\n", "\r\n", "\r"][below(3)];
    const wire = encode(
      [JSON.stringify(ROUTING), ...chunks, "[DONE]"]
        .map((data) => data.split("\n").map((line) => `data: ${line}${end}`).join("") + end)
        .join(": keep-alive\n\n"),
    );
    const list = [];
    for (let at = 0; at < wire.length; ) {
      const size = 1 + below(round % 3 === 0 ? 2 : 40);
      list.push(wire.subarray(at, at + size));
      at += size;
    }
    const got = await answerOf(list);
    assert.deepEqual(got, { text: chunks.join(""), routing: ROUTING }, `round ${round}`);
  }
});

test("text and routing are told as they come", async () => {
  const told = [];
  const got = await answerOf([routing, ": wait\n\n", "data: One. \n\n", "data: Two.\ndata: \n\n", "data: [DONE]\n\n"], {
    onRouting: (object) => told.push(object),
    onText: (chunk, text) => told.push([chunk, text]),
    onComment: (text) => told.push(text),
  });
  assert.deepEqual(got, { text: "One. Two.\n", routing: ROUTING });
  assert.deepEqual(told, [ROUTING, "wait", ["One. ", "One. "], ["Two.\n", "One. Two.\n"]]);
});

test("the done marker ends the reading at once and cancels the body", { timeout: 5000 }, async () => {
  const { response, state } = respond([routing, "data: All.\n\ndata: [DONE]\n\ndata: more\n\n"], { end: "hang" });
  assert.equal((await readAnswer(response)).text, "All.");
  assert.equal(state.cancelled, true);
});

test("a stream cut at any byte is never an answer", async () => {
  const wire = encode(`${routing}data: First. \n\ndata: Sécond.\ndata: \n\ndata: [DONE]\n\n`);
  for (let at = 0; at < wire.length; at++) {
    const error = await answerOf([wire.subarray(0, at)]).then(assert.fail, (thrown) => thrown);
    assert.ok(error instanceof ChatTruncatedError, `cut at ${at}: ${error}`);
    assert.ok("First. Sécond.\n".startsWith(error.partialText));
    assert.equal(error.retryable, true);
  }
  assert.equal((await answerOf([wire])).text, "First. Sécond.\n");
});

test("a connection that breaks is a truncation, with its cause", async () => {
  const { response } = respond([routing, "data: Half. \n\n"], { end: "break" });
  const error = await readAnswer(response).then(assert.fail, (thrown) => thrown);
  assert.ok(error instanceof ChatTruncatedError);
  assert.equal(error.partialText, "Half. ");
  assert.equal(error.cause.message, "network error");
});

test("done: null takes the end for the answer's", async () => {
  assert.equal((await answerOf(["data: a\n\ndata: [DONE]\n\n"], { done: null })).text, "a[DONE]");
});

const PROXY_ERROR = { error: "Try again.", code: "upstream_stalled", status: 504, retryable: true, requestId: "r1" };

for (const [name, head] of [["named error", "event: error\n"], ["otherwise named", "event: failed\n"], ["unnamed", ""]]) {
  test(`an error event throws: ${name}`, async () => {
    const list = [routing, "data: Half. \n\n", `${head}data: ${JSON.stringify(PROXY_ERROR)}\n\n`];
    const error = await answerOf(list).then(assert.fail, (thrown) => thrown);
    assert.ok(error instanceof ChatError && !(error instanceof ChatTruncatedError));
    const { message, code, status, retryable, requestId, partialText } = error;
    assert.deepEqual(
      { error: message, code, status, retryable, requestId, partialText },
      { ...PROXY_ERROR, partialText: "Half. " },
    );
  });
}

test("the host's own error object throws; followed by the marker it was text", async () => {
  const object = '{"error":"Failed to process message."}';
  const error = await answerOf([routing, `data: ${object}\n\n`]).then(assert.fail, (thrown) => thrown);
  assert.deepEqual([error.message, error.code, error.retryable], ["Failed to process message.", "upstream_error", true]);
  assert.equal((await answerOf([routing, `data: ${object}\n\ndata: [DONE]\n\n`])).text, object);
});

test("only the first event can be routing", async () => {
  const object = '{"type":"chord"}';
  const got = await answerOf([routing, `data: ${object}\n\n`, "data: [DONE]\n\n"]);
  assert.deepEqual(got, { text: object, routing: ROUTING });
  assert.deepEqual(await answerOf(["data: a\n\n", routing, "data: [DONE]\n\n"]), {
    text: `a${JSON.stringify(ROUTING)}`,
    routing: null,
  });
});

test("a named event is no text", async () => {
  assert.equal((await answerOf(["event: status\ndata: thinking\n\ndata: a\n\ndata: [DONE]\n\n"])).text, "a");
});

const REFUSALS = [
  ["JSON", 400, { "content-type": "application/json" }, '{"error":"Message is required."}', ["Message is required.", "http_400", 400, false]],
  ["event stream without a type", 400, {}, 'data: {"error":"Empty."}\n', ["Empty.", "http_400", 400, false]],
  ["the proxy's event", 503, HEADERS, `event: error\ndata: ${JSON.stringify({ ...PROXY_ERROR, code: "overloaded", status: 503 })}\n\n`, ["Try again.", "overloaded", 503, true]],
  ["problem details", 502, { "content-type": "application/problem+json" }, '{"title":"Bad Gateway","detail":"No host.","status":502}', ["No host.", "http_502", 502, true]],
  ["nothing", 404, {}, "", ["The chat service answered 404.", "http_404", 404, false]],
  ["HTML with 200", 200, { "content-type": "text/html" }, "<p>Sign in</p>", ["The chat service did not answer with a stream.", "not_event_stream", 502, false]],
  ["JSON error with 200", 200, { "content-type": "application/json" }, '{"error":"Busy."}', ["Busy.", "upstream_error", 502, false]],
];

for (const [name, status, headers, body, want] of REFUSALS) {
  test(`an answer that is no stream throws: ${name}`, async () => {
    const fetch = async () => new Response(body, { status, headers: { ...headers, "retry-after": "3" } });
    const error = await readAnswer("http://host/", { fetch }).then(assert.fail, (thrown) => thrown);
    assert.ok(error instanceof ChatError);
    assert.deepEqual([error.message, error.code, error.status, error.retryable], want);
    assert.equal(error.retryAfter, 3);
  });
}

test("the request is fetch's own", async () => {
  const init = { method: "POST", body: "{}" };
  const { signal } = new AbortController();
  let seen;
  const fetch = async (...args) => {
    seen = args;
    return respond([routing, "data: [DONE]\n\n"]).response;
  };
  assert.deepEqual(await readAnswer("http://host/x", { init, fetch, signal }), { text: "", routing: ROUTING });
  assert.deepEqual(seen, ["http://host/x", { ...init, signal }]);
});

test("aborting ends a silent read with its reason and cancels the body", { timeout: 5000 }, async () => {
  const { response, state } = respond([routing, "data: Half. \n\n"], { end: "hang" });
  const controller = new AbortController();
  const pending = readAnswer(response, { signal: controller.signal, onText: () => queueMicrotask(() => controller.abort()) });
  await assert.rejects(pending, { name: "AbortError" });
  assert.equal(state.cancelled, true);
});

for (const callback of ["onRouting", "onText", "onComment"]) {
  test(`${callback} that throws ends the reading with its own error`, { timeout: 5000 }, async () => {
    const { response, state } = respond([`${routing}: wait\n\ndata: a\n\n`], { end: "hang" });
    const fault = () => {
      throw new RangeError("the page's own fault");
    };
    await assert.rejects(readAnswer(response, { [callback]: fault }), RangeError);
    assert.equal(state.cancelled, true);
  });
}

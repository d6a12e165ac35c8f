/**
 * The reader half of a right chat stream: read it with fetch, get exactly the answer, or an error. No dependencies.
 *
 * An event stream (HTML 9.2.5 and 9.2.6) over any request method; `EventSource` can only GET. On top of it the chat's
 * own rules: the first event may be a routing object, the done marker ends the answer, all other data is text, and an
 * answer without its marker never counts as one.
 *
 *     const { text } = await readAnswer("/api/chatbot/chat/stream", {
 *       init: { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ message }) },
 *       onText: (chunk, text) => { bubble.textContent = text; },
 *     });
 */

/**
 * One event of the stream.
 * @typedef {object} StreamEvent
 * @property {string} type The `event:` field; "message" where there is none.
 * @property {string} data All data lines, joined by LF; nothing trimmed.
 * @property {string} lastEventId The last `id:` so far, "" before the first.
 */

/**
 * @typedef {object} Answer
 * @property {string} text The whole answer.
 * @property {object | null} routing The routing object, or null.
 */

/** A failure the reader is told of: by the stream, by the status, or by the end that did not come. */
export class ChatError extends Error {
  /**
   * @param {string} message Fit to be shown.
   * @param {object} [details]
   * @param {string} [details.code] The slug of the proxy's failures table, or one of this module's: `http_STATUS`,
   *   `upstream_error` (an error object without a code), `not_event_stream`, `stream_truncated`.
   * @param {number} [details.status] HTTP status that fits, 0 for none.
   * @param {boolean} [details.retryable] Whether asking again may help.
   * @param {string} [details.requestId] What the log calls this request.
   * @param {number | null} [details.retryAfter] Seconds to wait (Retry-After), null for none.
   * @param {string} [details.partialText] The answer text that came before. Not an answer: never keep it as one.
   * @param {unknown} [details.cause]
   */
  constructor(message, details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "ChatError";
    this.code = details.code ?? "upstream_error";
    this.status = details.status ?? 0;
    this.retryable = details.retryable ?? false;
    this.requestId = details.requestId ?? "";
    this.retryAfter = details.retryAfter ?? null;
    this.partialText = details.partialText ?? "";
  }
}

/** The stream ended, or broke, before its done marker. */
export class ChatTruncatedError extends ChatError {
  /**
   * @param {string} partialText
   * @param {unknown} [cause] The network's error; undefined where the stream ended in order.
   */
  constructor(partialText, cause) {
    super("The answer was cut short. Please try again.", { code: "stream_truncated", retryable: true, partialText, cause });
    this.name = "ChatTruncatedError";
  }
}

/** The five rules: bytes in, events out, wherever the packets are cut. */
export class EventStreamParser {
  #decoder = new TextDecoder(); // drops one BOM, keeps half a character for the next packet
  #line = "";
  #afterCR = false;
  /** @type {string[]} */
  #data = [];
  #type = "";
  #id = "";
  #onComment;

  /** @param {{onComment?: (text: string) => void}} [options] */
  constructor({ onComment } = {}) {
    this.#onComment = onComment;
    /** Last event ID, as a reconnection sends it. */
    this.lastEventId = "";
    /** Reconnection time in ms; null until the stream sets one. @type {number | null} */
    this.retry = null;
  }

  /**
   * @param {Uint8Array} packet
   * @returns {StreamEvent[]} The events it completes, oldest first.
   */
  feed(packet) {
    let text = this.#decoder.decode(packet, { stream: true });
    if (text === "") return [];
    if (this.#afterCR && text.startsWith("\n")) text = text.slice(1);
    this.#afterCR = text.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    const events = [];
    for (let i = 0; i < lines.length - 1; i++) {
      const event = this.#take(this.#line + lines[i]);
      if (event) events.push(event);
      this.#line = "";
    }
    this.#line += lines[lines.length - 1];
    return events;
  }

  /** @param {string} line @returns {StreamEvent | null} */
  #take(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (colon === 0) this.#onComment?.(value);
    else if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.retry = Number(value);
    return null;
  }

  #dispatch() {
    this.lastEventId = this.#id;
    const event = { type: this.#type || "message", data: this.#data.join("\n"), lastEventId: this.lastEventId };
    const empty = this.#data.length === 0;
    this.#data = [];
    this.#type = "";
    return empty ? null : event;
  }
}

/**
 * Read a response as an event stream. Leaving the loop early (break, throw) cancels the body at once.
 *
 * @param {Response} response
 * @param {object} [options]
 * @param {AbortSignal} [options.signal] Ends the reading; its reason is thrown.
 * @param {(text: string) => void} [options.onComment] Told of comment lines: a keep-alive shows that the host lives.
 * @returns {AsyncGenerator<StreamEvent, void, void>} Its end says only that the body ended; whether the answer is whole
 *   the done marker tells (`readAnswer`). An event that no blank line ended is not delivered.
 */
export async function* readEvents(response, { signal, onComment } = {}) {
  signal?.throwIfAborted();
  if (!response.body) return;
  const parser = new EventStreamParser({ onComment });
  const reader = response.body.getReader();
  const cancel = () => void reader.cancel(signal?.reason).catch(() => {});
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    for (;;) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted(); // a cancelled body reads as its end
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    signal?.removeEventListener("abort", cancel);
    cancel(); // not awaited: whoever has the answer does not wait for the connection; nothing to do after the end
  }
}

/**
 * Ask for one chat answer and read it to its end.
 *
 * @param {RequestInfo | URL | Response} input What fetch takes, or a response that is already there.
 * @param {object} [options]
 * @param {RequestInit} [options.init] Method, headers and body of the request.
 * @param {typeof globalThis.fetch} [options.fetch]
 * @param {(routing: object) => void} [options.onRouting]
 * @param {(chunk: string, text: string) => void} [options.onText] Each piece as it comes, and the text so far.
 * @param {(text: string) => void} [options.onComment]
 * @param {AbortSignal} [options.signal] Aborting throws its reason, an AbortError.
 * @param {string | null} [options.done] The done marker; null where the stream has none and its end is the answer's.
 * @returns {Promise<Answer>} Only ever a complete answer.
 * @throws {ChatError} An error status, an error event, an error object at the stream's end, no event stream.
 * @throws {ChatTruncatedError} The end came without the marker, or the connection broke.
 */
export async function readAnswer(input, options = {}) {
  const { init, onRouting, onText, onComment, signal, done = "[DONE]" } = options;
  const ask = options.fetch ?? globalThis.fetch;
  const response = input instanceof Response ? input : await ask(input, { ...init, signal });
  if (!response.ok || !isEventStream(response)) throw await refusal(response);

  let text = "";
  /** @type {object | null} */
  let routing = null;
  let first = true;
  /** An error object: a failure if nothing follows it, text otherwise. @type {{data: string, error: Record<string, unknown>} | null} */
  let held = null;
  const add = (/** @type {string} */ chunk) => {
    if (chunk === "") return;
    text += chunk;
    onText?.(chunk, text);
  };

  /** What `onComment` threw: not the network's fault. @type {unknown} */
  let thrown = null;
  const comment = (/** @type {string} */ line) => {
    try {
      onComment?.(line);
    } catch (error) {
      thrown = error;
      throw error;
    }
  };

  const events = readEvents(response, { signal, onComment: comment });
  for (;;) {
    let step;
    try {
      step = await events.next();
    } catch (error) {
      if (signal?.aborted || error === thrown) throw error;
      throw new ChatTruncatedError(text, error);
    }
    if (step.done) break;
    const { type, data } = step.value;
    try {
      const object = type !== "message" || data.startsWith("{") ? parseObject(data) : null;
      // The name of the proxy's error event can be set: any named event that carries an error is one.
      if (type === "error") throw failure(object ?? { error: data }, text);
      if (type !== "message" && typeof object?.error === "string") throw failure(object, text);
      if (type !== "message") continue;
      if (held) add(held.data);
      held = null;
      if (data === done) {
        await events.return();
        return { text, routing };
      }
      if (first && object && "type" in object) {
        routing = object;
        onRouting?.(object);
      } else if (object && typeof object.error === "string") {
        held = { data, error: object };
      } else {
        add(data);
      }
      first = false;
    } catch (error) {
      await events.return(); // also where a callback threw: nobody reads on
      throw error;
    }
  }
  if (held) throw failure(held.error, text);
  if (done === null) return { text, routing };
  throw new ChatTruncatedError(text);
}

/** @param {Response} response */
function isEventStream(response) {
  return /^text\/event-stream\s*(;|$)/i.test(response.headers.get("content-type") ?? "");
}

/**
 * What a response that is no stream says: a JSON body, problem details (RFC 9457), or an event stream of one error.
 * @param {Response} response
 */
async function refusal(response) {
  let body = "";
  try {
    body = await response.text();
  } catch {
    // the status alone has to do
  }
  const { status } = response;
  const details = {
    status: response.ok ? 502 : status,
    code: response.ok ? "not_event_stream" : `http_${status}`,
    retryable: status >= 500 || status === 429 || status === 408,
    retryAfter: seconds(response.headers.get("retry-after")),
    requestId: response.headers.get("x-request-id") ?? "",
  };
  // Hosts send an error stream without its content type, or without its last blank line.
  const [event] = new EventStreamParser().feed(new TextEncoder().encode(`${body}\n\n`));
  const object = parseObject(body) ?? (event && parseObject(event.data));
  if (object && response.ok && typeof object.error === "string") details.code = "upstream_error";
  if (object) return failure(object, "", details);
  const message = response.ok ? "The chat service did not answer with a stream." : `The chat service answered ${status}.`;
  return new ChatError(message, details);
}

/**
 * @param {Record<string, unknown>} object An error object or problem details.
 * @param {string} partialText
 * @param {object} [fallback] Details for what the object does not say; a stream that failed may be asked for again.
 */
function failure(object, partialText, fallback = { retryable: true }) {
  const message = [object.error, object.detail, object.title].find((value) => typeof value === "string" && value !== "");
  /** @type {Record<string, unknown>} */
  const details = { ...fallback, partialText };
  if (typeof object.code === "string") details.code = object.code;
  if (typeof object.status === "number") details.status = object.status;
  if (typeof object.retryable === "boolean") details.retryable = object.retryable;
  if (typeof object.requestId === "string") details.requestId = object.requestId;
  return new ChatError(/** @type {string} */ (message ?? "The chat service failed."), details);
}

/** @param {string} text @returns {Record<string, any> | null} */
function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** @param {string | null} header */
function seconds(header) {
  return header !== null && /^[0-9]+$/.test(header) ? Number(header) : null;
}

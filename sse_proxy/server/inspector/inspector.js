// The inspector: shows what /streams tells. Everything from the network is written as text, never as markup.

const POLL_MS = 1000;
const LIMIT = 100;

// One sentence for each slug of the ledger.
const REPAIRS = {
  unprefixed_line: "A line of text came without its “data: ”, which a standard reader ignores; it was given one.",
  blank_line_in_text: "A blank line inside the text would have ended the event; it was sent as text.",
  excess_blank_line: "More than one blank line stood between two events where none belonged to the text; one was kept.",
  field_like_text: "A line of text looked like a field of the event stream, such as “id:”; it was sent as text.",
  line_ending: "Line ends were CR or CRLF inside the text; they became LF.",
  bom: "A byte order mark stood where none belongs; it was removed.",
  invalid_utf8: "Bytes were not valid UTF-8; each was replaced by U+FFFD.",
  unterminated_event: "The last event came without its blank line; it was delivered all the same.",
  bare_marker: "The done marker came without its framing; it was sent as an event.",
  double_prefix: "An event's text began with a second “data: ”; it was removed.",
  split_json: "One JSON value was spread over lines without “data: ”; it was put back together.",
  whitespace_restored: "The host's splitter had removed white space between two sentences; the likeliest was put back, a guess.",
  chunk_moved: "A cut was moved so that a piece of text is not taken for a control event.",
  nul_id: "An id held a NUL character; the standard ignores such an id.",
  bad_retry: "A reconnection time was not a plain number; the standard ignores it.",
  unknown_field: "A field was none the standard knows; it was left out.",
  after_marker: "More came after the done marker; it was dropped.",
  undecided_dropped: "The stream failed while some bytes could still have been framing; they were dropped.",
};

const CODES = {
  upstream_unreachable: "The upstream could not be reached: refused, name not found, TLS, or connect timeout.",
  upstream_bad_response: "The upstream closed, or sent something that is not HTTP, before a response head.",
  upstream_http_error: "The upstream answered with an error status.",
  upstream_not_event_stream: "The upstream answered with something that is no event stream.",
  upstream_error: "The upstream reported an error of its own.",
  upstream_stalled: "Nothing came from the upstream for too long.",
  upstream_truncated: "The upstream's body was cut off.",
  upstream_incomplete: "The upstream ended without its done marker: the answer may not be whole.",
  upstream_empty: "The upstream ended without a single event.",
  event_too_large: "One event was larger than max_event.",
  timed_out: "The stream took longer than total_timeout.",
  overloaded: "More streams than max_streams were asked for.",
  proxy_draining: "The proxy was shutting down.",
  internal: "A fault of the proxy itself; its log says more.",
};

const OUTCOMES = {
  complete: "The whole answer was delivered, the done marker with it.",
  failed: "The answer is not whole; the reader was sent an error event and no done marker.",
  client_gone: "The reader left before the end.",
  passed_on: "The upstream's answer was no stream to repair; it was passed on as it came.",
};

const $ = (id) => document.getElementById(id);

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// ---- how values read ----

function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const kib = bytes / 1024;
  return kib < 1024 ? `${kib.toFixed(1)} KiB` : `${(kib / 1024).toFixed(1)} MiB`;
}

function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 1) return seconds < 0.001 ? "< 1 ms" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function outcomeBadge(ledger) {
  if (ledger.outcome === "failed") return element("span", "badge bad", ledger.code ?? "failed");
  if (isEmptyAnswer(ledger)) return element("span", "badge warn", "complete, no text");
  const tone = { complete: "good", client_gone: "warn" }[ledger.outcome] ?? "";
  return element("span", `badge ${tone}`, (ledger.outcome ?? "unknown").replaceAll("_", " "));
}

// Nothing but a routing object and the marker: complete by the letter, and certainly not what was asked for.
function isEmptyAnswer(ledger) {
  return ledger.outcome === "complete" && ledger.pieces === 0 && ledger.events_out <= 2;
}

function verdict(stream) {
  const { outcome, code } = stream.ledger;
  if (outcome === null) return "Running.";
  if (isEmptyAnswer(stream.ledger)) return "The stream was complete, but held no text of an answer.";
  const said = OUTCOMES[outcome] ?? outcome;
  return code ? `${said} ${CODES[code] ?? code}` : said;
}

function repairChips(ledger) {
  const cell = document.createDocumentFragment();
  const repairs = Object.entries(ledger.repairs);
  if (!repairs.length) cell.append(element("span", "sub", ledger.outcome === "passed_on" ? "–" : "none"));
  for (const [slug, n] of repairs) {
    const chip = element("span", "chip", n > 1 ? `${slug} ×${n}` : slug);
    chip.title = REPAIRS[slug] ?? slug;
    cell.append(chip);
  }
  return cell;
}

function route(stream) {
  const cell = document.createDocumentFragment();
  cell.append(`${stream.method} ${stream.route} `, element("div", "sub", stream.upstream));
  return cell;
}

function opener(stream) {
  const button = element("button", "link", String(stream.id));
  button.type = "button";
  button.title = stream.captured ? "Show this stream and its bytes" : "Show this stream";
  return button;
}

// ---- tables ----
// A column: [class, content, key]. A cell is drawn again only when its key changes, so that focus and selection stay.

const LIVE = [
  ["number", opener, (s) => s.captured],
  ["number", (s) => duration(Math.max(1, Math.floor(s.age_s))).replace(".00", "")],
  ["route", route, (s) => s.route],
  ["", (s) => s.state],
  ["", (s) => s.ledger.dialect],
  ["number", (s) => size(s.ledger.bytes_in)],
  ["number", (s) => size(s.ledger.bytes_out)],
  ["number", (s) => String(s.ledger.events_out)],
  ["repairs", (s) => repairChips(s.ledger), (s) => JSON.stringify(s.ledger.repairs)],
  ["number", (s) => String(s.ledger.keepalives)],
  ["", (s) => s.peer],
];

const RECENT = [
  ["number", opener, (s) => s.captured],
  ["", (s) => new Date(s.started_at).toLocaleTimeString()],
  ["route", route, (s) => s.route],
  ["outcome", (s) => outcomeBadge(s.ledger), (s) => `${s.ledger.outcome} ${s.ledger.code}`],
  ["", (s) => s.ledger.dialect],
  ["number", (s) => size(s.ledger.bytes_in)],
  ["number", (s) => size(s.ledger.bytes_out)],
  ["number", (s) => duration(s.ledger.first_text_s)],
  ["number", (s) => duration(s.ledger.duration_s)],
  ["repairs", (s) => repairChips(s.ledger), (s) => JSON.stringify(s.ledger.repairs)],
];

function fill(name, columns, streams) {
  const body = $(name).tBodies[0];
  const rows = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  streams.forEach((stream, place) => {
    const id = String(stream.id);
    let row = rows.get(id);
    rows.delete(id);
    if (!row) {
      row = element("tr");
      row.dataset.id = id;
      for (const [i, [className]] of columns.entries()) {
        const cell = element("td", className);
        cell.dataset.label = $(name).tHead.rows[0].cells[i].textContent; // shown where the screen has no room for a table
        row.append(cell);
      }
    }
    columns.forEach(([, content, key], i) => {
      const cell = row.cells[i];
      const now = String((key ?? content)(stream));
      if (cell.dataset.key === now) return;
      cell.dataset.key = now;
      cell.replaceChildren(content(stream));
    });
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
  for (const row of rows.values()) row.remove();
  $(name).parentElement.hidden = !streams.length;
  $(`${name}-empty`).hidden = streams.length > 0;
}

for (const name of ["live", "recent"]) {
  $(name).tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) location.hash = `stream-${row.dataset.id}`;
  });
}

// ---- one stream ----

const FIELD = /^(data|event|id|retry)(: ?|$)/;

// Write the bytes of one side with their line ends made visible.
function showBytes(pre, text) {
  const out = document.createDocumentFragment();
  for (const [, line, end] of text.matchAll(/([^\r\n]*)(\r\n|\r|\n|$)/g)) {
    if (!line && !end) continue;
    out.append(showLine(line));
    if (end) {
      out.append(element("span", `eol ${{ "\r": "cr", "\n": "lf", "\r\n": "crlf" }[end]}`), "\n");
    }
  }
  pre.replaceChildren(out);
}

function showLine(line) {
  if (!line) return "";
  if (line.startsWith(":")) return element("span", "comment", line);
  const out = document.createDocumentFragment();
  let rest = line;
  if (rest.startsWith("\ufeff")) {
    out.append(element("span", "mark bom"));
    rest = rest.slice(1);
  }
  const field = FIELD.exec(rest);
  if (field) {
    out.append(element("span", "field", field[0]));
    rest = rest.slice(field[0].length);
  }
  const kept = rest.replace(/[ \t]+$/, "");
  const text = element("span", field || !rest ? "" : "bare");
  kept.split("\0").forEach((part, i) => text.append(...(i ? [element("span", "mark nul")] : []), part));
  for (let n = kept.length; n < rest.length; n += 1) text.append(element("span", "mark space"));
  out.append(text);
  return out;
}

function sizeLine(node, id, side, recording) {
  const cut = recording.seen > recording.kept ? `first ${size(recording.kept)} of ` : "";
  const link = element("a", "", "download");
  link.href = `streams/${id}/${side}`;
  node.replaceChildren(`${cut}${size(recording.seen)} · `, link);
}

let shown = null; // what the dialog shows: {id, seen: bytes already drawn, live}

async function showDetail(id) {
  const response = await fetch(`streams/${id}`);
  if (shown?.id !== id) return; // closed, or another was opened meanwhile
  if (response.status === 404) {
    $("detail-title").textContent = `Stream ${id}`;
    $("verdict").textContent = "This stream is forgotten already.";
    for (const node of ["facts", "repairs", "raw", "repaired"]) $(node).replaceChildren();
    for (const node of ["repairs-section", "bytes", "not-captured"]) $(node).hidden = true;
    shown.live = false;
    return;
  }
  const stream = await response.json();
  if (shown?.id !== id) return;
  const { ledger } = stream;
  $("detail-title").textContent = `Stream ${stream.id}: ${stream.method} ${stream.route}`;
  $("verdict").textContent = verdict(stream);
  const facts = [
    ["Request id", stream.request_id],
    ["Upstream", stream.upstream],
    ["Reader", stream.peer],
    ["Began", new Date(stream.started_at).toLocaleString()],
    ["State", stream.state],
    ["Dialect", ledger.dialect],
    ["First text after", duration(ledger.first_text_s)],
    ["Duration", duration(ledger.duration_s ?? stream.age_s)],
    ["Bytes in, out", `${size(ledger.bytes_in)}, ${size(ledger.bytes_out)}`],
    ["Events in, out", `${ledger.frames_in}, ${ledger.events_out}`],
    ["Answer text", `${ledger.text_chars} characters in ${ledger.pieces} pieces`],
    ["Bytes dropped", size(ledger.dropped_bytes)],
    ["Keep-alives", String(ledger.keepalives)],
  ];
  $("facts").replaceChildren(
    ...facts.map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", "", name), element("dd", "", value || "–"));
      return pair;
    }),
  );
  const repairs = Object.entries(ledger.repairs);
  $("repairs-section").hidden = !repairs.length;
  $("repairs").replaceChildren(
    ...repairs.flatMap(([slug, n]) => [
      element("dt", "chip", `${slug} ×${n}`),
      element("dd", "", REPAIRS[slug] ?? ""),
    ]),
  );
  $("bytes").hidden = !stream.raw;
  $("not-captured").hidden = Boolean(stream.raw);
  $("not-captured").textContent =
    "The bytes of this stream were not captured. “capture: {keep: 50, max_bytes: 256KiB}” in the configuration " +
    "keeps those of the latest streams, for this page.";
  const seen = stream.raw ? `${stream.raw.kept} ${stream.repaired.kept}` : "";
  if (stream.raw) {
    for (const side of ["raw", "repaired"]) {
      sizeLine($(`${side}-size`), id, side, stream[side]);
      if (shown.seen !== seen) showBytes($(side), stream[side].text);
    }
  }
  shown.seen = seen;
  shown.live = ledger.outcome === null && stream.state !== "ended";
}

function followHash() {
  const id = /^#stream-(\d+)$/.exec(location.hash)?.[1] ?? null;
  if (id === (shown?.id ?? null)) return;
  shown = id && { id, seen: null, live: true };
  if (!id) {
    if ($("detail").open) $("detail").close();
    return;
  }
  showDetail(id).then(() => {
    if (shown?.id === id && !$("detail").open) $("detail").showModal();
  }, offline);
}

$("detail").addEventListener("close", () => {
  shown = null;
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
});
addEventListener("hashchange", followHash);

// ---- polling, while the page is seen ----

let timer = null;
let paused = false;

function setState(text, tone) {
  $("state").textContent = text;
  $("state").className = `badge ${tone}`;
}

function offline() {
  setState("not answering", "bad");
}

async function poll() {
  try {
    const response = await fetch(`streams?limit=${LIMIT}`);
    if (!response.ok) throw new Error(`status ${response.status}`);
    const all = await response.json();
    setState(all.ready ? "ready" : (all.reason ?? "not ready"), all.ready ? "good" : "warn");
    const running = all.active === 1 ? "1 stream runs" : `${all.active} streams run`;
    const some = all.active > all.live.length ? `, the newest ${all.live.length} are listed` : "";
    $("summary").textContent = `${all.version} · ${running}${some} · capture is ${all.capture ? "on" : "off"}`;
    fill("live", LIVE, all.live);
    fill("recent", RECENT, all.recent);
    if (shown?.live) await showDetail(shown.id);
  } catch {
    offline();
  }
}

async function run() {
  timer = null;
  await poll();
  // Set only now: a slow answer never lets polls pile up.
  if (!paused && document.visibilityState === "visible" && timer === null) timer = setTimeout(run, POLL_MS);
}

function schedule() {
  clearTimeout(timer);
  timer = null;
  if (!paused && document.visibilityState === "visible") run();
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Resume" : "Pause";
  schedule();
});
document.addEventListener("visibilitychange", schedule);
schedule();
followHash();

// Runs in the browser, from a page behind the proxy: three readers over all cases; the results are posted back.
import { readBoth } from "/peers/both.js";
import { createParser } from "/peers/eventsource-parser.js";
import * as reader from "/peers/reader.js";

/** The browser's own EventSource; it can only GET. */
const eventSource = ({ url }) =>
  new Promise((resolve, reject) => {
    const data = [];
    const source = new EventSource(url);
    source.onmessage = (event) => {
      data.push(event.data);
      if (event.data !== "[DONE]") return;
      source.close();
      resolve({ data });
    };
    source.onerror = (event) => {
      source.close(); // else it connects again
      if (event.data === undefined) reject(new Error(`error after ${data.length} events`));
      else resolve({ data, failure: event.data }); // the stream's own event of that name
    };
  });

/** The browser's fetch and stream, parsed by somebody else's parser. */
const fetchAndParse = async ({ url, init }) => {
  const reading = { data: [] };
  const parser = createParser({
    onEvent: ({ event, data }) => {
      if (event === "error") reading.failure = data;
      else reading.data.push(data);
    },
  });
  const response = await fetch(url, init);
  if (!response.ok) throw new Error(`status ${response.status}`);
  const packets = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let step = await packets.read(); !step.done; step = await packets.read()) parser.feed(step.value);
  return reading;
};

const READERS = {
  EventSource: [eventSource, "GET"],
  fetch: [fetchAndParse, "POST"],
  "reader.js": [(request) => readBoth(reader, request), "POST"],
};

async function main() {
  const cases = await (await fetch("/peers/cases")).json();
  const results = {};
  for (const [name, [read, method]] of Object.entries(READERS)) {
    results[name] = [];
    for (const request of cases[method]) {
      results[name].push(await read(request).catch((error) => ({ error: String(error) })));
    }
  }
  return results;
}

const report = await main().catch((error) => ({ failed: String(error) }));
await fetch("/peers/results", { method: "POST", body: JSON.stringify({ agent: navigator.userAgent, ...report }) });

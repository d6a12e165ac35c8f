// Runs in the browser, from a page behind the proxy: three readers over all cases; the results are posted back.
import { createParser } from "/peers/eventsource-parser.js";
import { readAnswer, readEvents } from "/peers/reader.js";

/** The browser's own EventSource; it can only GET. */
const eventSource = ({ url }) =>
  new Promise((resolve, reject) => {
    const data = [];
    const source = new EventSource(url);
    source.onmessage = (event) => {
      data.push(event.data);
      if (event.data !== "[DONE]") return;
      source.close();
      resolve(data);
    };
    source.onerror = (event) => {
      source.close(); // else it connects again
      reject(new Error(`${event.data ?? "error"} after ${data.length} events`));
    };
  });

/** The browser's fetch and stream, parsed by somebody else's parser. */
const fetchAndParse = async ({ url, init }) => {
  const data = [];
  const parser = createParser({ onEvent: (event) => data.push(event.data) });
  const response = await fetch(url, init);
  if (!response.ok) throw new Error(`status ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) parser.feed(step.value);
  return data;
};

/** The inspector's reader. */
const ours = async ({ url, init }) => {
  const data = [];
  for await (const event of readEvents(await fetch(url, init))) data.push(event.data);
  const { text } = await readAnswer(url, { init });
  if (text !== data.slice(1, -1).join("")) throw new Error(`readAnswer has ${JSON.stringify(text)}`);
  return data;
};

const READERS = { EventSource: [eventSource, "GET"], fetch: [fetchAndParse, "POST"], "reader.js": [ours, "POST"] };

async function main() {
  const cases = await (await fetch("/peers/cases")).json();
  const results = {};
  for (const [name, [read, method]] of Object.entries(READERS)) {
    results[name] = [];
    for (const request of cases[method]) {
      const result = await read(request).then(
        (data) => ({ data }),
        (error) => ({ error: String(error) }),
      );
      results[name].push(result);
    }
  }
  return results;
}

const report = await main().catch((error) => ({ failed: String(error) }));
await fetch("/peers/results", { method: "POST", body: JSON.stringify({ agent: navigator.userAgent, ...report }) });

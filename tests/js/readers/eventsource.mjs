// npm eventsource: the standard's EventSource for node; a POST goes through its own `fetch` option.
import { EventSource } from "eventsource";

import { run } from "./run.mjs";

await run(
  ({ url, init }) =>
    new Promise((resolve, reject) => {
      const data = [];
      const source = new EventSource(url, {
        fetch: (target, own) => fetch(target, { ...own, ...init, headers: { ...own.headers, ...init.headers } }),
      });
      source.onmessage = (event) => {
        data.push(event.data);
        if (event.data !== "[DONE]") return;
        source.close();
        resolve({ data });
      };
      // Its onerror is told of the connection only, not of an event of that name in the stream.
      source.addEventListener("error", (event) => {
        source.close(); // else it connects again
        if (event.data === undefined) reject(new Error(`${event.message ?? "error"} after ${data.length} events`));
        else resolve({ data, failure: event.data }); // the stream's own event of that name
      });
    }),
);

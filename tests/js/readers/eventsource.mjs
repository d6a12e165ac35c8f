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
        resolve(data);
      };
      source.onerror = (event) => {
        source.close(); // else it connects again
        reject(new Error(`${event.message ?? event.data ?? "error"} after ${data.length} events`));
      };
    }),
);

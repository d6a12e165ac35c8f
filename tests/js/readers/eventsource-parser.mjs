// npm eventsource-parser behind fetch, as chat front ends use it.
import { createParser } from "eventsource-parser";

import { run } from "./run.mjs";

await run(async ({ url, init }) => {
  const reading = { data: [] };
  const parser = createParser({
    onEvent: ({ event, data }) => {
      if (event === "error") reading.failure = data;
      else reading.data.push(data);
    },
    onError: (error) => {
      throw error;
    },
  });
  const response = await fetch(url, init);
  if (!response.ok) throw new Error(`status ${response.status}`);
  const decoder = new TextDecoder();
  for await (const packet of response.body) parser.feed(decoder.decode(packet, { stream: true }));
  return reading;
});

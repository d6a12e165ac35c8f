// The inspector's reader.js. Its readEvents shows the events, its readAnswer must come to the same text.
import { reader } from "../load.mjs";
import { run } from "./run.mjs";

await run(async ({ url, init }) => {
  const data = [];
  for await (const event of reader.readEvents(await fetch(url, init))) data.push(event.data);
  const { text } = await reader.readAnswer(url, { init });
  if (text !== data.slice(1, -1).join("")) throw new Error(`readAnswer has ${JSON.stringify(text)}`);
  return data;
});

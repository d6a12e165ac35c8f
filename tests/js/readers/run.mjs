// Runs one reader over many responses: cases come as JSON on stdin, what it read goes as JSON to stdout.
import { readFileSync } from "node:fs";

/**
 * What a reader got: the data of the events in order, and of the error event if one came.
 * @typedef {{ data: string[], failure?: string }} Reading
 */

/** @param {(request: { url: string, init: RequestInit }) => Promise<Reading>} read */
export async function run(read) {
  const cases = JSON.parse(readFileSync(0, "utf8"));
  const results = [];
  for (const request of cases) results.push(await read(request).catch((error) => ({ error: String(error) })));
  process.stdout.write(JSON.stringify(results));
}

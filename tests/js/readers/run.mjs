// Runs one reader over many responses: cases come as JSON on stdin, what it read goes as JSON to stdout.
import { readFileSync } from "node:fs";

/**
 * @param {(request: { url: string, init: RequestInit }) => Promise<string[]>} read Resolves to the data of the events,
 *   the done marker last.
 */
export async function run(read) {
  const cases = JSON.parse(readFileSync(0, "utf8"));
  const results = [];
  for (const { url, init } of cases) {
    try {
      results.push({ data: await read({ url, init }) });
    } catch (error) {
      results.push({ error: String(error) });
    }
  }
  process.stdout.write(JSON.stringify(results));
}

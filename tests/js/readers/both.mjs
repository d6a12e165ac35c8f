// Reads a response with both functions of reader.js, and compares them; in node and in the browser.

/**
 * @param {typeof import("../../../sse_proxy/server/inspector/reader.js")} reader
 * @param {{ url: string, init: RequestInit }} request
 * @returns {Promise<import("./run.mjs").Reading>}
 */
export async function readBoth({ readAnswer, readEvents }, { url, init }) {
  const reading = { data: [] };
  let copy; // of the same response: after a reset another one may have come further
  const ask = async (...request) => {
    const response = await fetch(...request);
    copy = response.clone();
    return response;
  };
  const answer = await readAnswer(url, { init, fetch: ask }).catch((error) => error);
  for await (const { type, data } of readEvents(copy)) {
    if (type === "error") reading.failure = data;
    else reading.data.push(data);
  }
  const text = reading.data.slice(1).filter((data) => data !== "[DONE]").join("");
  if (reading.failure === undefined) {
    if (answer.text !== text) throw new Error(`readAnswer has ${JSON.stringify(answer.text ?? String(answer))}`);
  } else {
    const { error, code, status, retryable } = JSON.parse(reading.failure);
    const want = JSON.stringify([error, code, status, retryable, text]);
    const got = JSON.stringify([answer.message, answer.code, answer.status, answer.retryable, answer.partialText]);
    if (got !== want) throw new Error(`readAnswer has ${got}, not ${want}`);
  }
  return reading;
}

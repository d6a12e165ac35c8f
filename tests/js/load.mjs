// The module as a browser gets it. By a data: URL, because this node may take a .js file without a package.json for CommonJS.
import { readFile } from "node:fs/promises";

const source = await readFile(new URL("../../sse_proxy/server/inspector/reader.js", import.meta.url));

/** @type {typeof import("../../sse_proxy/server/inspector/reader.js")} */
export const reader = await import(`data:text/javascript;base64,${source.toString("base64")}`);

// The inspector's reader.js. Its readEvents shows the events, its readAnswer must come to the same end.
import { reader } from "../load.mjs";
import { readBoth } from "./both.mjs";
import { run } from "./run.mjs";

await run((request) => readBoth(reader, request));

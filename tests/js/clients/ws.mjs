// The `ws` package as a client: `node ws.mjs URL`. Prints what it saw as one JSON object.
import { createHash } from "node:crypto";
import { once } from "node:events";

import WebSocket from "ws";

const url = process.argv[2];
const seen = {};
const sha = (data) => createHash("sha256").update(data).digest("hex");
const message = async (socket) => {
  const [data, isBinary] = await once(socket, "message");
  return { data, isBinary };
};

async function open(path, protocols, options) {
  const socket = new WebSocket(url + path, protocols, { maxPayload: 0, ...options });
  await once(socket, "open");
  return socket;
}

// A conversation: what was agreed, sizes, kinds, pings both ways, and a close of ours.
{
  const socket = await open("/echo?x=%2F", ["none", "json"], { headers: { Cookie: "a=1" }, origin: "http://page" });
  seen.protocol = socket.protocol;
  seen.extensions = socket.extensions;
  const pinged = once(socket, "ping"); // the host pings after the first message
  const long = "5 млн ".repeat(833_333);
  socket.send(long);
  const text = await message(socket);
  seen.text = !text.isBinary && sha(text.data) === sha(long);
  seen.ping = (await pinged)[0].toString();
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
  socket.send(bytes);
  const binary = await message(socket);
  seen.binary = binary.isBinary && binary.data.equals(bytes);
  socket.send("");
  seen.empty = (await message(socket)).data.length === 0;
  socket.send("in ", { fin: false });
  socket.send("pieces", { fin: true });
  seen.pieces = (await message(socket)).data.toString();
  socket.ping("are you there");
  seen.pong = (await once(socket, "pong"))[0].toString();
  socket.close(4001, "good night");
  const [code, reason] = await once(socket, "close");
  seen.ourClose = [code, reason.toString()];
}

// Without compression, and without a subprotocol.
{
  const socket = await open("/echo", [], { perMessageDeflate: false });
  seen.plain = [socket.protocol, socket.extensions];
  socket.send("hello");
  seen.hello = (await message(socket)).data.toString();
  socket.terminate();
  await once(socket, "close");
}

// The host closes, and the host vanishes.
for (const path of ["/close", "/vanish"]) {
  const socket = new WebSocket(url + path);
  const [code, reason] = await once(socket, "close");
  seen[path] = [code, reason.toString()];
}

// The host refuses.
{
  const socket = new WebSocket(url + "/refuse");
  const [, response] = await once(socket, "unexpected-response");
  const body = [];
  for await (const piece of response) body.push(piece);
  seen.refusal = [response.statusCode, response.statusMessage, response.headers["x-why"], Buffer.concat(body).toString()];
}

console.log(JSON.stringify(seen));
process.exit(0); // the refused handshake's connection is kept alive, and with it the process

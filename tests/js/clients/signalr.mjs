// SignalR's own client: `node signalr.mjs URL TRANSPORT`. Prints what it saw as one JSON object.
import { HttpTransportType, HubConnectionBuilder, LogLevel } from "@microsoft/signalr";

const [, , url, name] = process.argv;
const transport = HttpTransportType[name];
const told = [];

const connection = new HubConnectionBuilder().withUrl(`${url}/hubs/chat?x=%2F`, { transport }).configureLogging(LogLevel.Error).build();
connection.on("tell", (text) => told.push(text));
await connection.start();

const text = 'line one\nline two\r\n\r\ndata: "три" {}\u0085 end';
const seen = { transport: connection.connection.transport?.constructor?.name ?? name };
seen.echo = (await connection.invoke("Echo", text)) === text;
seen.large = (await connection.invoke("Echo", "x".repeat(300_000))).length;
seen.items = await new Promise((resolve, reject) => {
  const items = [];
  connection.stream("Count", 5).subscribe({ next: (n) => items.push(n), complete: () => resolve(items), error: reject });
});
await connection.send("Tell", "one");
await connection.send("Tell", "two");
await connection.invoke("Echo", ""); // behind both
seen.told = told;
seen.error = await connection.invoke("Fail").catch((error) => error.message);
await connection.stop();
seen.state = connection.state;

console.log(JSON.stringify(seen));

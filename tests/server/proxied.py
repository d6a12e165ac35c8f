"""A whole proxy in a test, in front of an upstream that does what the test says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sse_proxy.config import Config, Listen, parse_config
from sse_proxy.server.app import Proxy
from sse_proxy.server.http import FrontServer, Site, serve
from sse_proxy.server.registry import StreamEntry
from tests.fakes import eventually, parse_response, raw_request

__all__ = [
    "CHAT",
    "WIRES",
    "Answer",
    "Running",
    "answer_text",
    "ask",
    "events",
    "make_config",
    "post",
    "running",
    "wire",
]

CHAT = "/api/chatbot/chat/stream"
WIRES = Path(__file__).parent.parent / "vectors" / "wire"
QUESTION = b'{"message":"which arpeggio"}'


def wire(name: str, chunks: str = "743", writer: str = "gaapi") -> bytes:
    """Return what a host sends for one of the stored answers."""
    return (WIRES / f"{name}.{chunks}.{writer}.sse").read_bytes()


def answer_text(name: str) -> str:
    """Return what the host computed, its line ends as LF."""
    return (WIRES / f"{name}.answer.txt").read_bytes().decode().replace("\r\n", "\n").replace("\r", "\n")


def make_config(url: str, *, top: dict[str, Any] | None = None, **upstream: Any) -> Config:
    """Return a configuration with one upstream.

    Args:
        top: keys of the file's top.
        upstream: keys of the upstream, settings of streams among them; the preset is gaapi where none is given.
    """
    entry = {"name": "host", "url": url, "preset": "gaapi", **upstream}
    text = json.dumps({"listen": "127.0.0.1:0", "admin": False, **(top or {}), "upstreams": [entry]})
    return parse_config(text, {})


@dataclass
class Running:
    """A proxy that listens."""

    proxy: Proxy
    site: Site

    @property
    def port(self) -> int:
        assert self.site.port is not None
        return self.site.port

    @property
    def idle(self) -> bool:
        """Nothing is left of any stream."""
        services = self.proxy.services
        return not (services.runs or services.registry.active or services.admission.active)

    async def last(self) -> StreamEntry:
        """Wait until every stream is accounted for, and return the last one."""
        await eventually(lambda: self.idle and self.proxy.registry.recent(), what="the streams to be over")
        return self.proxy.registry.recent()[0]


@asynccontextmanager
async def running(config: Config | str, **settings: Any) -> AsyncIterator[Running]:
    """Run a proxy by a configuration, or in front of an upstream's URL with `make_config`'s settings."""
    if isinstance(config, str):
        config = make_config(config, **settings)
    proxy = Proxy(config)
    front = FrontServer(proxy.handle, max_header=config.max_header, head_timeout=config.head_timeout)
    site = await serve(front, Listen(host="127.0.0.1", port=0))
    try:
        yield Running(proxy, site)
    finally:
        await site.stop(0)
        await proxy.close()


def post(
    path: str = CHAT,
    body: bytes = QUESTION,
    *headers: str,
    method: str = "POST",
    version: str = "1.1",
    last: bool = True,
) -> bytes:
    """Return a request's bytes."""
    lines = [f"{method} {path} HTTP/{version}", "Host: proxy.example", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if last and version == "1.1":
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@dataclass
class Answer:
    """A response as the client saw it.

    Attributes:
        whole: by its own framing.
    """

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def events(self) -> list[tuple[str, str]]:
        return events(self.body)

    @property
    def text(self) -> str:
        """The answer's text: data of all events but routing, error and marker."""
        return "".join(
            data
            for at, (kind, data) in enumerate(self.events)
            if kind == "message" and data != "[DONE]" and not (at == 0 and data.startswith('{"type"'))
        )

    @property
    def done(self) -> int:
        """How many done markers there are."""
        return sum(data == "[DONE]" for _, data in self.events)

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(data) for kind, data in self.events if kind == "error"]

    @property
    def error(self) -> dict[str, Any]:
        """The one error event, which is the last event."""
        errors = self.errors
        assert len(errors) == 1, self.body
        assert self.events[-1][0] == "error", self.body
        assert self.done == 0, self.body
        assert self.whole
        return errors[0]


def events(body: bytes) -> list[tuple[str, str]]:
    """Read an event stream as the HTML standard says (9.2.6): type and data of each event."""
    found: list[tuple[str, str]] = []
    kind = ""
    data: list[str] = []
    text = body.decode("utf-8").removeprefix("\ufeff")
    lines = re.split("\r\n|\n|\r", text)
    for line in lines[:-1]:
        if not line:
            if data:
                found.append((kind or "message", "\n".join(data)))
            kind, data = "", []
            continue
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ") if colon else ""
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
    return found


async def ask(proxy: Running, data: bytes | None = None, *, timeout: float = 10.0) -> Answer:  # noqa: ASYNC109
    """Send a request and read the answer to the connection's end."""
    raw = await raw_request(proxy.port, post() if data is None else data, timeout=timeout)
    return Answer(*parse_response(raw, head_only=(data or b"").startswith(b"HEAD ")))

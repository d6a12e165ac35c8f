"""The settings of one stream: how it is read, cut and written, and what happens when it fails."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from sse_proxy.config import places
from sse_proxy.config.kinds import Settings, boolean, choice, duration, section, size, text, texts
from sse_proxy.config.values import format_size
from sse_proxy.core.options import Chunker, Dialect, Payload, Reader, Split, StreamOptions

__all__ = ["JsonSource", "StreamSettings", "impossible"]

ERROR_RETRY_MS = 5000  # a page that reconnects after a failure does so slowly (design section 6)
_MARKERS = texts('a text in quotes such as "[DONE]", a list of such, or off', one=True)


class JsonSource(Settings):
    """Where `source: json` gets its answer: the host's JSON twin of the stream.

    Attributes:
        path: of the twin, on the same upstream; empty where the host has none.
        answer: JSON pointer (RFC 6901) to the answer's text in the reply; empty for a reply that is the text.
        meta: fixed keys of the first event, before those copied from the reply.
        omit: keys of the reply that are not copied into the first event; the answer never is.
    """

    path: Annotated[str, places.path(empty=True)] = ""
    answer: Annotated[str, places.pointer] = ""
    meta: Annotated[dict[str, Any], places.meta] = Field(default_factory=dict)
    omit: Annotated[tuple[str, ...], texts("a list of keys, or [] for none")] = ()


with warnings.catch_warnings():
    # The file's key is `json`, and so is the attribute; what it hides is a method pydantic has deprecated.
    warnings.filterwarnings("ignore", message='Field name "json"', category=UserWarning)

    class StreamSettings(Settings):
        """The settings of one stream. The defaults are the built-in ones: read by the standard, passed one to one.

        Attributes:
            source: `stream` reads the host's event stream; `json` calls its JSON twin and writes the stream itself.
            json: where the twin is.
            dialect: how the upstream's bytes are framed.
            chunker: how the host cuts its answer into frames; matters to `auto` and `single-prefix` only. `any` makes
                no assumption.
            payload: what the data of an event is.
            split: where answer text is cut into events.
            max_hold: seconds a piece of a sentence waits for its end.
            max_chunk: longest chunk of answer text, in bytes of UTF-8.
            restore_whitespace: put back the white space an old splitter removed (needs `chunker: sentence`).
            strip_double_prefix: remove one redundant `data: ` at the head of a frame.
            done: the done markers, any of which ends a complete stream; empty where it has none.
            end_types: `payload: json`: values of `type` that end a complete stream.
            error_types: `payload: json`: values of `type` that end a failed stream.
            require_done: a clean end without marker or end type is a failure. Without a value: true where there is a
                marker or an end type to wait for.
            reader: whom the output is written for.
            keepalive: seconds of silence before a keep-alive comment; None for none.
            keepalive_text: text of that comment.
            keepalive_blank_line: whether a blank line follows it.
            commit_after: our head leaves after so many seconds at the latest; None waits for the upstream's.
            errors: `event` answers 200 and an error event; `status` the true status, before our head.
            error_event: the `event:` name of an error event; None for a bare data line.
            known_messages: messages of the host that may be shown to its readers.
            cors: `upstream` repeats what the upstream last answered; or the origins that may read us; None for none.
            error_message: what a reader is told of a failure.
            idle_timeout: seconds without a byte from the upstream; None waits for ever.
            stall_timeout: seconds without an event from the upstream (a comment is none); None waits for ever.
            total_timeout: seconds a stream may last; None for ever.
            write_timeout: seconds a reader may take nothing; None waits for ever.
            max_event: most that may be held of one event, in bytes.
            scrub_history: remove error objects from the conversation history of a request.
        """

        source: Annotated[Literal["stream", "json"], choice(("stream", "json"))] = "stream"
        json: Annotated[JsonSource, section(JsonSource)] = JsonSource()  # type: ignore[assignment]
        dialect: Annotated[Dialect, choice(Dialect)] = Dialect.STANDARD
        chunker: Annotated[Chunker, choice(Chunker)] = Chunker.ANY
        payload: Annotated[Payload, choice(Payload)] = Payload.OPAQUE
        split: Annotated[Split, choice(Split)] = Split.NONE
        max_hold: Annotated[float, duration(most_s=60.0)] = 0.2
        max_chunk: Annotated[int, size(least=1024)] = 64 * 1024
        restore_whitespace: Annotated[bool, boolean] = False
        strip_double_prefix: Annotated[bool, boolean] = False
        done: Annotated[tuple[str, ...], _MARKERS] = ()
        end_types: Annotated[tuple[str, ...], texts("a list of texts such as [RUN_FINISHED], or [] for none")] = ()
        error_types: Annotated[tuple[str, ...], texts("a list of texts such as [RUN_ERROR], or [] for none")] = ()
        require_done: Annotated[bool, boolean] = False
        reader: Annotated[Reader, choice(Reader)] = Reader.STANDARD
        keepalive: Annotated[float | None, duration(off=True)] = 15.0
        keepalive_text: Annotated[str, text(empty=True)] = "keep-alive"
        keepalive_blank_line: Annotated[bool, boolean] = True
        commit_after: Annotated[float | None, duration(off=True)] = 10.0
        errors: Annotated[Literal["event", "status"], choice(("event", "status"))] = "event"
        error_event: Annotated[str | None, text("the name of an event", off=True)] = "error"
        known_messages: Annotated[tuple[str, ...], texts("a list of texts, or [] for none")] = ()
        cors: Annotated[Literal["upstream"] | tuple[str, ...] | None, places.cors] = "upstream"
        error_message: Annotated[str, text()] = "The chat service failed. Please try again."
        idle_timeout: Annotated[float | None, duration(off=True)] = 60.0  # as nginx's proxy_read_timeout
        stall_timeout: Annotated[float | None, duration(off=True)] = None
        total_timeout: Annotated[float | None, duration(off=True)] = None
        write_timeout: Annotated[float | None, duration(off=True)] = 60.0
        max_event: Annotated[int, size(least=1024)] = 16 * 1024 * 1024
        scrub_history: Annotated[bool, boolean] = False

        @model_validator(mode="before")
        @classmethod
        def _require_what_can_be_required(cls, values: Any, info: ValidationInfo) -> Any:
            # An answer that is not complete must never look complete: where the end can be told, it is.
            if info.context and info.context.get("layer"):
                return values
            if isinstance(values, dict) and "require_done" not in values:
                return {**values, "require_done": bool(values.get("done") or values.get("end_types"))}
            return values

        @model_validator(mode="after")
        def _refuse_what_cannot_be(self, info: ValidationInfo) -> StreamSettings:
            if not info.context:
                for _keys, message in impossible(self):
                    raise PydanticCustomError("setting", "{reason}", {"reason": message})
            return self

        def options(self, *, request_id: str = "", method: str = "POST") -> StreamOptions:
            """Return what the core needs for one stream of a request."""
            return StreamOptions(
                dialect=self.dialect,
                chunker=self.chunker,
                payload=self.payload,
                split=self.split,
                reader=self.reader,
                restore_whitespace=self.restore_whitespace,
                strip_double_prefix=self.strip_double_prefix,
                done=self.done,
                end_types=self.end_types,
                error_types=self.error_types,
                require_done=self.require_done,
                error_event=self.error_event,
                error_message=self.error_message,
                known_messages=self.known_messages,
                error_retry_ms=ERROR_RETRY_MS if method == "GET" else None,
                request_id=request_id,
                keepalive_text=self.keepalive_text,
                keepalive_blank_line=self.keepalive_blank_line,
                max_chunk_bytes=self.max_chunk,
                max_event_bytes=self.max_event,
                max_hold_s=self.max_hold,
            )


def impossible(s: StreamSettings) -> list[tuple[tuple[str, ...], str]]:
    """List the combinations of settings that cannot be: the keys at fault, and one line that names a way out."""
    faults: list[tuple[tuple[str, ...], str]] = []

    def needs(key: str, value: str, other: str, wanted: str) -> None:
        faults.append(((key, other), f"{key}: {value} needs {other}: {wanted}, and {other} is {getattr(s, other)}"))

    if s.payload is not Payload.TEXT:
        if s.dialect is Dialect.RAW:
            needs("dialect", "raw", "payload", "text")
        if s.split is not Split.NONE:
            needs("split", s.split, "payload", "text")
        if s.reader is Reader.GA_CLIENT:
            needs("reader", s.reader, "payload", "text")
        if s.source == "json":
            needs("source", "json", "payload", "text")
    if s.payload is not Payload.JSON:
        for key in ("end_types", "error_types"):
            if getattr(s, key):
                needs(key, f"[{', '.join(getattr(s, key))}]", "payload", "json")
    if s.dialect is Dialect.RAW and (s.done or s.require_done):
        message = "dialect: raw has no done marker; allowed with it: done: off and require_done: false"
        faults.append((("dialect", *(key for key in ("done", "require_done") if getattr(s, key))), message))
    elif s.require_done and not (s.done or s.end_types):
        message = "require_done: true needs a marker in done or a type in end_types, and there is neither"
        faults.append((("require_done", "done", "end_types"), message))
    if s.source == "json" and not s.json.path:
        faults.append((("source", "json"), "source: json needs json.path, the path of the host's JSON twin"))
    if s.max_event < s.max_chunk:
        sizes = f"{format_size(s.max_event)}, less than max_chunk: {format_size(s.max_chunk)}; allowed: at least that"
        faults.append((("max_event", "max_chunk"), f"max_event: {sizes}"))
    return faults

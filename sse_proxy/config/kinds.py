"""How a setting is written in the file, one `Kind` each: `15s`, `16MiB`, `off`, one of several words, and back again.

A `Kind` stands in the annotation of a setting and knows all there is to know of its spelling: how a value of the file
becomes one of the program, how that is written back, what a JSON schema says of it, and the words for a refusal. In
code (outside a file) a value of the program is taken as it is, so `StreamSettings(keepalive=15.0)` works; in a file a
bare number is refused, because nobody can see its unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from sse_proxy.config.values import (
    DURATION_PATTERN,
    LONGEST_S,
    SIZE_PATTERN,
    Refused,
    format_duration,
    format_size,
    nearest,
    parse_duration,
    parse_size,
    plain,
    resolve_plain,
    show,
)

__all__ = [
    "FILE",
    "LAYER",
    "MERGED",
    "Kind",
    "Settings",
    "boolean",
    "check_text",
    "choice",
    "duration",
    "each",
    "integer",
    "kind_of",
    "section",
    "section_of",
    "size",
    "text",
    "texts",
]

T = TypeVar("T")

# The validation contexts: a whole section of a file; one layer of stream settings, whose combinations are judged when
# all layers are merged; and all of them merged, to be judged by the caller. None means values that come from code.
FILE: dict[str, bool] = {"file": True}
LAYER: dict[str, bool] = {"file": True, "layer": True}
MERGED: dict[str, bool] = {"merged": True}


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: it stands in annotations
class Kind:
    """How one setting is written.

    Attributes:
        allowed: what may stand there, in words.
        parse: value of the file, or of code, to value of the program; the second argument is whether it is of a file.
            Raises Refused.
        render: value of the program to value of the file.
        schema: the JSON schema of the value in the file.
        off: whether `off` is allowed; the value is then None.
        null: whether an empty value (`null`) means `off`.
        shown: what is said of a value that was found.
        section: the model of the mapping that stands there; None for a single value.
        textual: whether any text may stand there, so that "off" in quotes is one. Elsewhere it means `off`.
    """

    allowed: str
    parse: Callable[[Any, bool], Any]
    render: Callable[[Any], Any] = field(default=lambda value: value)
    schema: Mapping[str, Any] = field(default_factory=dict)
    off: bool = False
    null: bool = False
    shown: Callable[[Any], str] = show
    section: type[BaseModel] | None = None
    textual: bool = False

    def words(self) -> str:
        """Say what is allowed, `off` included."""
        return f"{self.allowed}, or off" if self.off else self.allowed

    def check(self, value: Any, from_file: bool) -> Any:
        """Return the value of the program.

        Raises:
            Refused: it cannot be; the message says what was found and what is allowed.
        """
        try:
            if self.off and self._is_off(value, from_file):
                return None
            if from_file and (plain(value) is None or (plain(value) is True and self.off)):
                raise Refused
            return self.parse(value, from_file)
        except Refused as refused:
            start = f"allowed: {self.allowed}"
            reason = str(refused) or start
            if reason == start or reason.startswith(f"{start} ("):
                reason = f"allowed: {self.words()}{reason[len(start) :]}"
            raise Refused(f"found {self.shown(value)}; {reason}", refused.items) from None

    def _is_off(self, value: Any, from_file: bool) -> bool:
        if value is None:
            return self.null or not from_file
        return plain(value) is False or (value == "off" and not self.textual)

    def to_file(self, value: Any) -> Any:
        """Write a value of the program as the file has it; `off` is False there."""
        if value is None and self.off:
            return None if self.null else False
        return self.render(value)

    def json_schema(self, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON schema of the value in the file; `schema` is that of a section."""
        schema = dict(self.schema if schema is None else schema)
        if not self.off:
            return schema
        # `off` is false to YAML 1.1, and to us, but a word to an editor that reads YAML 1.2.
        options: list[dict[str, Any]] = [schema, {"enum": [False, "off"]}]
        return {"anyOf": [*options, {"type": "null"}] if self.null else options}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any, info: ValidationInfo) -> Any:
            try:
                return self.check(value, bool(info.context and info.context.get("file")))
            except Refused as refused:
                context = {"reason": str(refused), "items": refused.items}
                raise PydanticCustomError("setting", "{reason}", context) from None

        return core_schema.with_info_before_validator_function(validate, handler(source))


class Settings(BaseModel):
    """The base of all sections: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


def kind_of(model: type[Settings], name: str) -> Kind:
    """Return how one setting of a section is written."""
    return next(entry for entry in model.model_fields[name].metadata if isinstance(entry, Kind))


def section_of(model: type[Settings], name: str) -> type[Settings] | None:
    """Return the model of a section inside a section; None for a setting that is no section."""
    return cast("type[Settings] | None", kind_of(model, name).section)


def section(model: type[Settings], *, off: bool = False) -> Kind:
    """Make the kind of a nested section: a mapping, judged by its model."""

    def parse(value: Any, _from_file: bool) -> Any:
        if not isinstance(value, (dict, model)):
            raise Refused
        return value

    return Kind("a mapping with the keys " + ", ".join(model.model_fields), parse, off=off, section=model)


def duration(*, off: bool = False, most_s: float = LONGEST_S) -> Kind:
    """Make the kind of a duration: text with a unit in the file, seconds in the program."""

    def parse(value: Any, from_file: bool) -> float:
        if isinstance(value, str):
            seconds = parse_duration(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if from_file and value != 0:
                parse_duration(str(value))  # refuses it, with the hint
                raise Refused
            seconds = float(value)
        else:
            raise Refused
        if not seconds > 0:  # also not a NaN from code
            raise Refused(f"allowed: more than 0{'; off switches it off' if off else ''}")
        if seconds > most_s:
            raise Refused(f"allowed: at most {format_duration(most_s)}")
        return seconds

    schema = {"type": "string", "pattern": DURATION_PATTERN}
    return Kind("a duration with its unit, such as 15s, 200ms, 2m or 1h", parse, format_duration, schema, off=off)


def size(*, least: int = 1) -> Kind:
    """Make the kind of a size: text with a unit in the file, bytes in the program."""

    def parse(value: Any, from_file: bool) -> int:
        if isinstance(value, str):
            number = parse_size(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            if from_file and value != 0:
                parse_size(str(value))  # refuses it, with the hint
                raise Refused
            number = value
        else:
            raise Refused
        if number < least:
            raise Refused(f"allowed: at least {format_size(least)}")
        return number

    schema = {"type": "string", "pattern": SIZE_PATTERN}
    return Kind("a size with its unit, such as 512B, 64KiB, 16MiB or 1GiB", parse, format_size, schema)


# --- plain values -----------------------------------------------------------------------------------------------------


def integer(least: int, most: int) -> Kind:
    """Make the kind of a whole number in a range."""

    def parse(value: Any, _from_file: bool) -> int:
        number = plain(value)
        if type(number) is not int or not least <= number <= most:
            raise Refused(f"allowed: {allowed}{_unquoted(value, int)}")
        return number

    allowed = f"a whole number from {least} to {most}"
    return Kind(allowed, parse, schema={"type": "integer", "minimum": least, "maximum": most})


def _parse_boolean(value: Any, _from_file: bool) -> bool:
    answer = plain(value)
    if type(answer) is not bool:
        raise Refused(f"allowed: true or false{_unquoted(value, bool)}")
    return answer


boolean = Kind("true or false", _parse_boolean, schema={"type": "boolean"})


def _unquoted(value: Any, wanted: type) -> str:
    """Return a hint where only the quotes are wrong."""
    return " (without quotes)" if isinstance(value, str) and type(resolve_plain(value)) is wanted else ""


def choice(words: type[StrEnum] | tuple[str, ...], *, off: bool = False) -> Kind:
    """Make the kind of a setting that is one of several words, a StrEnum's members or literals."""
    names = tuple(str(word) for word in words)

    def parse(value: Any, _from_file: bool) -> str:
        if isinstance(value, str) and value in names:
            return words(str(value)) if isinstance(words, type) else str(value)
        near = nearest(value, names) if isinstance(value, str) else None
        raise Refused(f"allowed: {' | '.join(names)}" + (f" (did you mean {near}?)" if near else ""))

    return Kind(" | ".join(names), parse, str, {"enum": list(names)}, off=off)


def check_text(value: Any, *, what: str = "text", empty: bool = False, trimmed: bool = True) -> str:
    """Return a text of one line.

    A line break or a NUL would break the framing of a stream or of a header, so no control character passes.

    Raises:
        Refused: it is no text, is empty or has spaces around it where that is not allowed.
    """
    if not isinstance(value, str):
        near = ""
        if isinstance(value, (bool, int, float)):
            near = "; in quotes it is text"
        raise Refused(f"allowed: {what}{near}")
    if not value and not empty:
        raise Refused(f"allowed: {what}, not empty")
    if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise Refused(f"allowed: {what} of one line, without control characters")
    if trimmed and value != value.strip():
        raise Refused(f"allowed: {what} without white space around it")
    return str(value)


def each(values: Iterable[Any], parse: Callable[[Any], T]) -> tuple[T, ...]:
    """Parse every item of a list.

    Raises:
        Refused: one or more of them cannot be.
    """
    parsed: list[T] = []
    refused: list[tuple[int, Any, str]] = []
    for i, item in enumerate(values):
        try:
            parsed.append(parse(item))
        except Refused as error:
            refused.append((i, item, str(error)))
    if refused:
        raise Refused("; ".join(f"its item {show(item)}: {reason}" for _, item, reason in refused), refused)
    return tuple(parsed)


def text(what: str = "text", *, empty: bool = False, off: bool = False) -> Kind:
    """Make the kind of a text of one line."""

    def parse(value: Any, _from_file: bool) -> str:
        return check_text(value, what=what, empty=empty)

    schema: dict[str, Any] = {"type": "string"} if empty else {"type": "string", "minLength": 1}
    return Kind(what, parse, schema=schema, off=off, textual=True)


def texts(what: str, *, one: bool = False) -> Kind:
    """Make the kind of a list of texts, each once; with `one`, a single text stands for it too, and `off` for none."""

    def parse(value: Any, from_file: bool) -> tuple[str, ...]:
        if one and plain(value) is False:
            return ()
        if one and isinstance(value, str):
            return (check_text(value, what="a text"),)
        if not isinstance(value, (list, tuple)):
            raise Refused
        checked = each(value, check_text)
        twice = [(i, item, "allowed: each once") for i, item in enumerate(checked) if item in checked[:i]]
        if twice:
            raise Refused("allowed: each once", twice)
        return checked

    def render(value: tuple[str, ...]) -> Any:
        if not one:
            return list(value)
        return (value[0] if len(value) == 1 else list(value)) if value else False

    items = {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}
    schema = {"anyOf": [{"type": "string", "minLength": 1}, items, {"const": False}]} if one else items
    return Kind(what, parse, render, schema)

"""Plain values of a file to a `Config`: every section checked, the layers of a stream's settings merged.

The layers are merged key by key: built in < preset < `defaults` < upstream < route. Two things are added to that order:

- A setting that only answer text has (`split`, `reader`, `source`) and that stands for many routes, under `defaults` or
  at an upstream, yields where one route says that its payload is no text: `reader: ga-client` at an upstream is for
  its chat route and leaves its AG-UI route alone. Said in the same place, the combination is refused.
- An event stream on a route that nobody declared takes clocks, keep-alives and messages from the layers, nothing that
  says how a stream is read or cut: it is read by the standard and passed one to one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sse_proxy.config.kinds import FILE, LAYER, MERGED, Settings, kind_of, section_of
from sse_proxy.config.models import Config, Route, RouteBase, ServerSettings, Upstream, UpstreamBase
from sse_proxy.config.places import is_below
from sse_proxy.config.presets import PRESET_VALUES
from sse_proxy.config.stream import StreamSettings, impossible
from sse_proxy.config.tree import Place, Tree, path_text
from sse_proxy.config.values import nearest, plain, show
from sse_proxy.core.options import Payload
from sse_proxy.errors import ConfigError

__all__ = ["Loader"]

S = TypeVar("S", bound=Settings)

_MOST_PROBLEMS = 100

_STREAM_KEYS = tuple(StreamSettings.model_fields)
_UPSTREAM_KEYS = (*UpstreamBase.model_fields, "routes")
_ROUTE_KEYS = (*RouteBase.model_fields, "stream")
_SERVER_KEYS = (*ServerSettings.model_fields, "defaults", "upstreams")

# Where a key belongs that stands in the wrong section.
_HOMES: dict[str, tuple[str, ...]] = {
    "belongs under defaults, at an upstream, or into the stream of a route": _STREAM_KEYS,
    "belongs at an upstream": _UPSTREAM_KEYS,
    "belongs at a route": _ROUTE_KEYS,
    "belongs at the top of the file": _SERVER_KEYS,
}

# What an event stream on an undeclared route takes from the layers.
_UNDECLARED_KEYS = frozenset(
    {"keepalive", "keepalive_text", "keepalive_blank_line", "commit_after", "error_event", "error_message"}
    | {"known_messages", "cors", "idle_timeout", "stall_timeout", "total_timeout", "write_timeout"}
    | {"max_chunk", "max_event"}
)

# What only answer text has: the value that says "not here".
_TEXT_ONLY: dict[str, Any] = {"split": "none", "reader": "standard", "source": "stream"}

# How many routes a layer speaks for: the higher, the fewer.
_BUILT_IN, _PRESET, _DEFAULTS, _UPSTREAM, _ROUTE = range(5)


@dataclass(slots=True)
class _Layer:
    """What one place says of streams.

    Attributes:
        rank: how many routes it speaks for.
        values: values of the program, by key.
        place: where they stand; None for a preset.
        bad: keys that have a fault of their own, so that no combination with them can be judged.
    """

    rank: int
    values: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None
    bad: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Draft:
    """A route before its layers are merged; `stream` is None for a route that is passed on byte for byte."""

    path: str
    methods: tuple[str, ...] | None
    stream: list[_Layer] | None
    place: Place | None = None

    def overlaps(self, path: str, methods: tuple[str, ...] | None) -> bool:
        """Say whether a request could be for both."""
        if self.path != path:
            return False
        return self.methods is None or methods is None or not set(self.methods).isdisjoint(methods)

    def name(self) -> str:
        """Return method and path, for a message."""
        return f"{', '.join(self.methods)} {self.path}" if self.methods else self.path


class Loader:
    """One configuration on its way from plain values to models, collecting what is wrong."""

    def __init__(self, tree: Tree, source: str, *, short: Mapping[Place, Place] | None = None) -> None:
        self._tree = tree
        self._source = source
        self._short = short or {}
        self._problems: list[tuple[Place, str]] = []
        self._faults: set[tuple[Place, str]] = set()  # combinations that are reported, once and not for every route

    def load(self) -> Config:
        """Return the configuration.

        Raises:
            ConfigError: there is none.
        """
        self._problems += self._tree.problems
        top = self._tree.value
        config: Config | None = None
        if isinstance(top, dict):
            config = self._config(top)
        elif not self._problems:
            found = "the file is empty" if top is None else f"found {show(top)}"
            self._problem((), f"{found}; allowed: a mapping that has at least upstreams")
        if self._problems or config is None:
            raise ConfigError(self._lines())
        return config

    def _problem(self, place: Place, what: str) -> None:
        if not any(place[:end] in self._tree.unknown for end in range(len(place) + 1)):
            self._problems.append((place, what))

    def _lines(self) -> list[str]:
        lines: list[tuple[int, str]] = []
        for place, what in self._problems:
            line = self._tree.line_of(place)
            for prefix, instead in self._short.items():
                if place[: len(prefix)] == prefix:
                    place = (*instead, *place[len(prefix) :])
            where = path_text(place) or self._source
            lines.append((line or 0, f"{where}: {what}" + (f" (line {line})" if line else "")))
        lines.sort(key=lambda entry: entry[0])  # stable: the order of the file
        unique = list(dict.fromkeys(text for _, text in lines))
        more = len(unique) - _MOST_PROBLEMS
        return [*unique[:_MOST_PROBLEMS], f"{self._source}: {more} more problems"] if more > 0 else unique

    # --- the file, from the top ---------------------------------------------------------------------------------------

    def _config(self, top: dict[str, Any]) -> Config | None:
        self._refuse_unknown(top, (), _SERVER_KEYS)
        server = self._section(ServerSettings, top, ())
        if server and server.admin and server.listen.overlaps(server.admin):
            self._problem(("admin",), f"found {server.admin}, where the proxy listens; allowed: another port, or off")
        defaults = _Layer(_DEFAULTS)
        if "defaults" in top:
            raw = top["defaults"]
            if isinstance(raw, dict):
                self._refuse_unknown(raw, ("defaults",), _STREAM_KEYS)
                defaults = self._layer(raw, ("defaults",), _DEFAULTS)
            else:
                self._problem(("defaults",), f"found {show(raw)}; allowed: a mapping of settings of streams")
        raw_upstreams = top.get("upstreams")
        if not isinstance(raw_upstreams, list) or not raw_upstreams:
            found = "is missing" if "upstreams" not in top else f"found {show(raw_upstreams)}"
            if raw_upstreams == []:
                found = "found an empty list"
            self._problem(("upstreams",), f"{found}; allowed: a list of upstreams, at least one")
            return None
        upstreams: list[Upstream] = []
        names: dict[str, Place] = {}
        for i, raw in enumerate(raw_upstreams):
            place: Place = ("upstreams", i)
            if not isinstance(raw, dict):
                self._problem(place, f"found {show(raw)}; allowed: a mapping with at least name and url")
                continue
            name = raw.get("name")
            if isinstance(name, str) and names.setdefault(name, place) != place:
                other = path_text(names[name])
                self._problem((*place, "name"), f"found {show(name)}, the name of {other}; allowed: each name once")
            upstream = self._upstream(raw, place, defaults)
            if upstream is not None:
                upstreams.append(upstream)
        if server is None or self._problems:
            return None
        # Everything was checked above; once more, and a file that goes away meanwhile would raise something else.
        return Config.model_construct(**_values(server), upstreams=tuple(upstreams))

    def _upstream(self, raw: dict[str, Any], place: Place, defaults: _Layer) -> Upstream | None:
        self._refuse_unknown(raw, place, (*_UPSTREAM_KEYS, *_STREAM_KEYS))
        base = self._section(UpstreamBase, raw, place)
        own = self._layer(raw, place, _UPSTREAM)
        preset_name = base.preset if base else str(raw.get("preset", UpstreamBase.model_fields["preset"].default))
        preset, preset_routes = _preset(preset_name)
        if base:
            self._check_upstream(base, place)
        around = [defaults, own]
        drafts = self._drafts(raw.get("routes", []), place, preset_routes)
        if preset_name not in PRESET_VALUES:
            return None  # what the routes start from is not known, so they cannot be judged
        routes: list[Route] = []
        for draft in drafts:
            if draft.stream is None:
                routes.append(Route.model_construct(path=draft.path, methods=draft.methods, stream=None))
                continue
            # What a preset says of its own route stands below `defaults`; what the file says of a route, above.
            below = [layer for layer in draft.stream if layer.place is None]
            above = [layer for layer in draft.stream if layer.place is not None]
            stream = self._stream([preset, *below, *around, *above], draft, place)
            if stream is None:
                continue
            if base and base.mode == "observe" and stream.source == "json":
                what = f"found observe, which passes the host's bytes on; the route {draft.name()} has source: json"
                self._problem((*place, "mode"), what + ", which writes its own")
            routes.append(Route.model_construct(path=draft.path, methods=draft.methods, stream=stream))
        clocks = [
            _Layer(layer.rank, _only(layer.values, _UNDECLARED_KEYS), layer.place, layer.bad)
            for layer in (preset, *around)
        ]
        undeclared = self._stream(clocks, None, place)
        if base is None or undeclared is None or self._problems:
            return None
        return Upstream.model_construct(**_values(base), routes=tuple(routes), undeclared=undeclared)

    def _check_upstream(self, base: UpstreamBase, place: Place) -> None:
        if base.strip_prefix is not None and not is_below(base.match.path, base.strip_prefix):
            allowed = f"a beginning of match.path, which is {show(base.match.path)}, or off"
            self._problem((*place, "strip_prefix"), f"found {show(base.strip_prefix)}; allowed: {allowed}")

    # --- routes -------------------------------------------------------------------------------------------------------

    def _drafts(self, raw_routes: Any, upstream: Place, preset_routes: list[_Draft]) -> list[_Draft]:
        """Return the routes of an upstream: the preset's, changed by those of the file, then the file's own."""
        drafts = list(preset_routes)
        if not isinstance(raw_routes, list):
            self._problem((*upstream, "routes"), f"found {show(raw_routes)}; allowed: a list of routes")
            return drafts
        seen: list[_Draft] = []
        for i, raw in enumerate(raw_routes):
            place = (*upstream, "routes", i)
            if not isinstance(raw, dict):
                self._problem(place, f"found {show(raw)}; allowed: a mapping with at least path")
                continue
            self._refuse_unknown(raw, place, _ROUTE_KEYS)
            base = self._section(RouteBase, raw, place)
            layers = self._route_layers(raw, place)
            if base is None:
                continue
            twin = next((draft for draft in seen if draft.overlaps(base.path, base.methods)), None)
            if twin and twin.place:
                what = f"found {show(base.path)}, which {path_text(twin.place)} has for the same method"
                self._problem((*place, "path"), f"{what}; allowed: each path and method once")
                continue
            draft = next((draft for draft in preset_routes if draft.overlaps(base.path, base.methods)), None)
            if draft is None:
                draft = _Draft(base.path, base.methods, [])
                drafts.append(draft)
            elif base.methods is not None:
                draft.methods = base.methods
            draft.place = place
            if "stream" in raw:
                draft.stream = None if layers is None else [*(draft.stream or []), *layers]
            seen.append(draft)
        return drafts

    def _route_layers(self, raw: dict[str, Any], place: Place) -> list[_Layer] | None:
        stream = raw.get("stream", {})
        place = (*place, "stream")
        if plain(stream) is False:
            return None
        if not isinstance(stream, dict):
            self._problem(place, f"found {show(stream)}; allowed: a mapping of settings, {{}} for none, or off")
            return []
        self._refuse_unknown(stream, place, _STREAM_KEYS)
        return [self._layer(stream, place, _ROUTE)]

    # --- sections and layers ------------------------------------------------------------------------------------------

    def _refuse_unknown(self, raw: dict[str, Any], place: Place, known: tuple[str, ...]) -> None:
        """Report the keys that a composite section does not have, each with where it may have been meant to be."""
        for key in raw:
            if key not in known:
                # Looking for the nearest key takes time, which a file of rubbish is not worth.
                self._problem((*place, key), _unknown(key, known, hint=len(self._problems) < _MOST_PROBLEMS))

    def _section(self, model: type[S], raw: dict[str, Any], place: Place) -> S | None:
        """Return a section made of those keys of `raw` that its model has, or None and the problems."""
        known = _only(raw, model.model_fields)
        try:
            return model.model_validate(known, context=FILE)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                self._explain(details, model, place)
            return None

    def _layer(self, raw: dict[str, Any], place: Place, rank: int) -> _Layer:
        """Return what one place says of streams; a setting with a fault is reported and left out."""
        values = _only(raw, _STREAM_KEYS)
        bad: set[str] = set()
        try:
            stream = StreamSettings.model_validate(values, context=LAYER)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                self._explain(details, StreamSettings, place)
                bad.add(str(details["loc"][0]))
            stream = StreamSettings.model_validate({k: v for k, v in values.items() if k not in bad}, context=LAYER)
        return _Layer(rank, _set_values(stream), place, bad)

    def _explain(self, details: ErrorDetails, model: type[Settings], place: Place) -> None:
        """Turn one fault that pydantic found into a problem."""
        loc = details["loc"]
        here: Place = (*place, *loc)
        for step in loc[:-1]:
            model = section_of(model, str(step)) or model
        key = str(loc[-1]) if loc else ""
        if details["type"] == "extra_forbidden":
            self._problem(here, _unknown(key, model.model_fields))
        elif details["type"] == "missing":
            self._problem(here, f"is missing; allowed: {kind_of(model, key).words()}")
        elif items := details.get("ctx", {}).get("items"):
            for i, item, reason in items:
                self._problem((*here, i), f"found {show(item)}; {reason}")
        else:
            self._problem(here, details["msg"])

    def _stream(self, layers: list[_Layer], draft: _Draft | None, upstream: Place) -> StreamSettings | None:
        """Merge the layers of one route, the later over the earlier, and judge what comes out."""
        values: dict[str, Any] = {}
        origin: dict[str, _Layer] = {}
        for layer in layers:
            for key, value in layer.values.items():
                values[key] = {**values.get(key, {}), **value} if key == "json" else value
                origin[key] = layer
        built_in = _Layer(_BUILT_IN)
        if values.get("payload", Payload.OPAQUE) is not Payload.TEXT:
            says = origin.get("payload", built_in).rank
            for key, instead in _TEXT_ONLY.items():
                if key in values and origin[key].rank < says:
                    values[key] = instead
        merged = StreamSettings.model_validate(values, context=MERGED)
        bad = {key for layer in layers for key in layer.bad}
        faults = [(keys, message) for keys, message in impossible(merged) if bad.isdisjoint(keys)]
        for keys, message in faults:
            # Where to mend it: the most special place of the file that says one of the keys at fault.
            said = [(layer, key) for key in keys for layer in (origin.get(key),) if layer and layer.place is not None]
            place: Place = upstream
            if said:
                layer, key = max(said, key=lambda entry: entry[0].rank)
                place = (*(layer.place or ()), key)
            inside = draft is not None and draft.place is not None and place[: len(draft.place)] == draft.place
            route = f" (for the route {draft.name()})" if draft and not inside else ""
            if (place, message) not in self._faults:
                self._faults.add((place, message))
                self._problem(place, message + route)
        return None if faults else merged


def _preset(name: str) -> tuple[_Layer, list[_Draft]]:
    """Return what a preset says of all its routes, and its routes."""
    written = PRESET_VALUES.get(name, PRESET_VALUES["none"])
    everywhere = StreamSettings.model_validate(_only(written, _STREAM_KEYS), context=LAYER)
    drafts: list[_Draft] = []
    for raw in written["routes"]:
        route = RouteBase.model_validate(_only(raw, RouteBase.model_fields), context=FILE)
        layers: list[_Layer] | None = None
        if raw["stream"] is not False:
            layers = [_Layer(_ROUTE, _set_values(StreamSettings.model_validate(raw["stream"], context=LAYER)))]
        drafts.append(_Draft(route.path, route.methods, layers))
    return _Layer(_PRESET, _set_values(everywhere)), drafts


def _only(values: Mapping[str, Any], keys: Container[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in keys}


def _values(section: Settings) -> dict[str, Any]:
    return {key: getattr(section, key) for key in type(section).model_fields}


def _set_values(stream: StreamSettings) -> dict[str, Any]:
    """Return the settings that were given, `json` as a mapping of those of its keys that were."""
    values = {key: getattr(stream, key) for key in stream.model_fields_set}
    if "json" in values:
        values["json"] = _only(_values(values["json"]), values["json"].model_fields_set)
    return values


def _unknown(key: str, known: Iterable[str], hint: bool = True) -> str:
    """Say that a key is not known here: where it belongs, the nearest one that is known, or all that are."""
    known = tuple(known)
    for home, keys in _HOMES.items():
        if key in keys:
            return f"unknown key here; {key} {home}"
    near = nearest(key, known) if hint else None
    return f"unknown key; did you mean {near}?" if near else f"unknown key; allowed: {', '.join(known)}"

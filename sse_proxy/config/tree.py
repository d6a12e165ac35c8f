"""The text of a configuration file to plain values, each with the line it stood on.

YAML without its traps: no key may stand twice in a mapping, no tag may build an object, no anchor may blow up, and
plain scalars are typed narrowly (`resolve_plain`). `${NAME}` is put in here, into single scalars after parsing, so what
the environment holds can never become YAML of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import yaml

from sse_proxy.config.values import EnvText, resolve_plain, show

__all__ = ["LARGEST_FILE", "Place", "Tree", "path_text", "read_tree"]

LARGEST_FILE = 1024 * 1024  # bytes; a large real one has some 50 KiB
_MOST_NODES = 50_000  # counted with what aliases repeat
_DEEPEST = 30  # a right file is 7 deep
_LONGEST_SCALAR = 64 * 1024  # characters, after interpolation

Place: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys and positions from the top, such as `("upstreams", 0, "url")`."""

_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
# What a plain scalar may be taken for without a tag of its own; `resolve_plain` then gives the type.
_PLAIN = frozenset("tag:yaml.org,2002:" + name for name in ("null", "bool", "int", "float", "timestamp", "value"))
_MAP, _SEQ = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"

_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\})?")


class _TooMuch(Exception):
    """The file says more than any configuration has to say."""


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, that stops early: on rubbish it would take seconds, or more stack than there is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        self._depth += 1
        if self._nodes > _MOST_NODES:
            raise _TooMuch(f"more than {_MOST_NODES} values")
        if self._depth > _DEEPEST:
            raise _TooMuch(f"nested deeper than {_DEEPEST} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class Tree:
    """The values of a file and where they stand.

    Attributes:
        value: the whole, of dict, list, str, int, float, bool and None.
        lines: the line, from 1, of every value by its place.
        problems: what is wrong in the file as such: place and what.
        unknown: places whose value could not be told; whatever stands there instead is no fault of its own.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self.lines: dict[Place, int] = {}
        self.problems: list[tuple[Place, str]] = []
        self.unknown: set[Place] = set()

    def line_of(self, place: Place) -> int | None:
        """Return the line of a value, or of the nearest that is around it; None for a place outside the file."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.lines:
                return self.lines[place[:end]]
        return None


def path_text(place: Place) -> str:
    """Write a place as people do: `upstreams[0].routes[1].path`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", step) else show(step)
            text += f".{name}" if text else name
    return text


def read_tree(text: str, env: Mapping[str, str]) -> Tree:
    """Parse the text of a configuration; what is wrong with it is in the tree's problems, nothing is raised."""
    tree = Tree()
    if len(text) > LARGEST_FILE:
        tree.problems.append(((), f"larger than {LARGEST_FILE // 1024} KiB"))
        return tree
    try:
        node = yaml.compose(text, Loader=_Loader)
    except _TooMuch as refused:
        tree.problems.append(((), str(refused)))
        return tree
    except yaml.MarkedYAMLError as error:
        tree.problems.append(((), _syntax_error(error)))
        return tree
    except yaml.reader.ReaderError as error:
        shown = f"U+{error.character:04X}" if isinstance(error.character, int) else show(error.character)
        line = text.count("\n", 0, error.position) + 1
        tree.problems.append(((), f"no YAML: line {line} holds the character {shown}, which a file may not hold"))
        return tree
    except (yaml.YAMLError, ValueError) as error:
        tree.problems.append(((), f"no YAML: {_one_line(str(error))}"))
        return tree
    if node is not None:
        try:
            tree.value = _Walk(tree, env).value(node, ())
        except _TooMuch as refused:
            tree.problems[:] = [((), str(refused))]
    return tree


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _syntax_error(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = _one_line(error.problem or error.context or str(error))
    if what.startswith("but ") and error.context:
        what = f"{_one_line(error.context)}, {what}"
    if "\\t" in what:
        what += "; indent with spaces, not with tabs"
    return f"no YAML: {where}{what}"


class _Walk:
    """One walk over the nodes of a file."""

    def __init__(self, tree: Tree, env: Mapping[str, str]) -> None:
        self._tree = tree
        self._env = env
        self._nodes = 0
        self._merging = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        """Return the plain value of a node.

        Raises:
            _TooMuch: the nodes, with what aliases repeat, are too many or nested too deep (also without end).
        """
        self._count()
        if len(place) > _DEEPEST:
            raise _TooMuch(f"nested deeper than {_DEEPEST} levels; does an alias stand inside its own anchor?")
        self._tree.lines[place] = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, (_SEQ,), place)
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        self._check_tag(node, (_MAP,), place)
        return self._mapping(node, place)

    def _problem(self, place: Place, what: str) -> None:
        self._tree.problems.append((place, what))

    def _unknown(self, place: Place, what: str) -> None:
        self._tree.unknown.add(place)
        self._problem(place, what)

    def _check_tag(self, node: yaml.Node, allowed: tuple[str, ...], place: Place) -> None:
        if node.tag not in allowed:
            shown = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._unknown(place, f"found the tag {show(shown)}; allowed: plain YAML without such tags")

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        # `<<` first, so that what is written out wins; of several, the first.
        self._merging += 1
        if self._merging > _DEEPEST:
            raise _TooMuch(f"<< nested deeper than {_DEEPEST} levels; does an alias stand inside its own anchor?")
        for other in reversed(self._merged(node, place)):
            values.update(self._mapping(other, place))
        self._merging -= 1
        own: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(place, "found a list or a mapping as a key; allowed: keys that are single words")
                continue
            if key_node.tag == _MERGE:
                continue
            key, line = str(key_node.value), key_node.start_mark.line + 1
            here = (*place, key)
            if key in own:
                self._problem(here, f"stands twice, in lines {own[key]} and {line}; allowed: once")
                continue
            own[key] = line
            values[key] = self.value(value_node, here)
            self._tree.lines[here] = line
        return values

    def _merged(self, node: yaml.MappingNode, place: Place) -> list[yaml.MappingNode]:
        """Return the mappings that `<<` brings into another."""
        found: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                continue
            for other in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                self._count()
                if isinstance(other, yaml.MappingNode) and other is not node:
                    found.append(other)
                else:
                    self._problem(place, "found << without a mapping; allowed: an alias of one, or a list of such")
        return found

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooMuch(f"more than {_MOST_NODES} values; do aliases repeat one another?")

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text = str(node.value)
        if node.tag != _STR and node.tag not in _PLAIN:
            self._check_tag(node, (_STR,), place)
            return text
        value = self._interpolated(text, place) if "${" in text else text
        if any(0xD800 <= ord(c) <= 0xDFFF for c in value):  # an escape of YAML, or a byte of the environment
            self._unknown(place, f"found {show(value)}; allowed: text that can be written in UTF-8")
            return ""
        return value if node.tag == _STR or "${" in text else resolve_plain(text)

    def _interpolated(self, text: str, place: Place) -> str:
        alone = False
        parts: list[str] = []
        at = 0
        for match, value in self._variables(text, place):
            alone = match.span() == (0, len(text)) and match[0] != "$${"
            parts += (text[at : match.start()], value)
            at = match.end()
        result = "".join(parts) + text[at:]
        if len(result) > _LONGEST_SCALAR:
            self._unknown(place, f"the variables give more than {_LONGEST_SCALAR} characters")
            return ""
        return EnvText(result) if alone else result

    def _variables(self, text: str, place: Place) -> Iterator[tuple[re.Match[str], str]]:
        for match in _VARIABLE.finditer(text):
            name, default = match[1], match[2]
            if match[0] == "$${":
                yield match, "${"
            elif name is None:
                allowed = "${NAME}, ${NAME:-default}, or $${ for the characters as they are"
                self._unknown(place, f"found {show(text)}; allowed: {allowed}")
                yield match, ""
            elif self._env.get(name) or (name in self._env and default is None):
                yield match, self._env[name]
            elif default is not None:
                yield match, default
            else:
                self._unknown(place, f"the environment has no {name}; set it, or write ${{{name}:-default}}")
                yield match, ""

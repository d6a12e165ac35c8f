"""The kinds of settings that say where something is: paths, URLs, files, networks, origins.

Each is checked as far as that is possible without the network, so that a fault shows when the file is read and not in
the middle of a request.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from sse_proxy.config.kinds import Kind, check_text, each
from sse_proxy.config.values import Refused, plain, show

__all__ = [
    "IPNetwork",
    "cors",
    "file_name",
    "host",
    "host_name",
    "is_below",
    "meta",
    "methods",
    "name",
    "networks",
    "path",
    "pointer",
    "url",
]

IPNetwork: TypeAlias = IPv4Network | IPv6Network


def file_name(what: str, *, append: bool = False, off: bool = False, null: bool = False) -> Kind:
    """Make the kind of a file's name: one to read, or to append to; a relative one starts at the working directory."""

    def parse(value: Any, _from_file: bool) -> Path:
        path = Path(check_text(str(value) if isinstance(value, Path) else value, what=f"the name of {what}"))
        try:
            if path.is_dir():
                raise Refused(f"allowed: the name of {what}; this is a directory")
            if append and not path.exists():
                if not path.parent.is_dir():
                    raise Refused(f"allowed: the name of {what} in a directory that exists")
                known, mode = path.parent, os.W_OK
            else:
                known, mode = path, os.W_OK if append else os.R_OK
            if not known.exists():
                raise Refused(f"allowed: the name of {what}; there is no such file")
            if not os.access(known, mode):
                raise Refused(f"allowed: the name of {what} that can be {'written' if append else 'read'}")
        except OSError as error:
            raise Refused(f"allowed: the name of {what} ({error.strerror})") from None
        return path

    return Kind(f"the name of {what}", parse, str, {"type": "string", "minLength": 1}, off=off, null=null, textual=True)


def _parse_network(item: Any) -> IPNetwork:
    if isinstance(item, (IPv4Network, IPv6Network)):
        return item
    allowed = "allowed: an address or a network such as 10.0.0.0/8 or '::1'"
    if not isinstance(item, str):
        raise Refused(allowed)
    try:
        return ipaddress.ip_network(str(item))
    except ValueError:
        near = ""
        with contextlib.suppress(ValueError):  # a right network whose host bits are set
            near = f" (did you mean {ipaddress.ip_network(str(item), strict=False)}?)"
        raise Refused(allowed + near) from None


def _parse_networks(value: Any, _from_file: bool) -> tuple[IPNetwork, ...]:
    if not isinstance(value, (list, tuple)):
        raise Refused
    return each(value, _parse_network)


networks = Kind(
    "a list of addresses and networks such as [10.0.0.0/8, '::1'], or [] for none",
    _parse_networks,
    lambda networks: [str(network) for network in networks],
    {"type": "array", "items": {"type": "string"}},
)


def _check_path(value: Any, what: str = "a path") -> str:
    """Return a path of a request target: it starts with `/`, is percent-encoded and has neither query nor fragment."""
    path = check_text(value, what=what)
    if not path.startswith("/"):
        raise Refused(f"allowed: {what} that starts with /")
    if any(c in path for c in "?#\\ ") or not path.isascii():
        raise Refused(f"allowed: {what} without ?, # and \\, with spaces and what is not ASCII percent-encoded")
    if any(segment in (".", "..") for segment in path.split("/")):
        raise Refused(f"allowed: {what} without . and .. segments")
    return path


def path(*, star: bool = False, off: bool = False, empty: bool = False) -> Kind:
    """Make the kind of a path; with `star`, a `*` at its end makes it a prefix; with `empty`, "" means none."""

    def parse(value: Any, _from_file: bool) -> str:
        if empty and value == "":
            return ""
        path = _check_path(value)
        if "*" in (path[:-1] if star else path):
            raise Refused("allowed: a path with a * at its end only" if star else "allowed: a path without *")
        return path

    allowed = "a path, exact or ending in * for a prefix" if star else "a path"
    return Kind(allowed, parse, schema={"type": "string", "pattern": "^(/|$)" if empty else "^/"}, off=off)


HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")


def _parse_host(value: Any, _from_file: bool) -> str:
    host = check_text(value, what="a host name")
    if not HOST.fullmatch(host):
        raise Refused("allowed: a host name, without scheme, port and path")
    return host_name(host)


host = Kind("a host name", _parse_host, schema={"type": "string", "minLength": 1}, off=True, null=True)


def _show_url(url: Any) -> str:
    """Show a URL without what stands before its @: a password has no place in a log."""
    return show(re.sub(r"^([a-z]+://)?.*@", r"\1***@", url, flags=re.I | re.S) if isinstance(url, str) else url)


def _parse_url(value: Any, _from_file: bool) -> str:
    url = check_text(value, what="an http:// or https:// URL")
    if re.search(r"[\s\\]", url) or not url.isascii():
        raise Refused("allowed: an http:// or https:// URL in ASCII, percent-encoded, without white space")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Refused(f"allowed: an http:// or https:// URL ({error})") from None
    if parts.scheme not in ("http", "https") or not url.lower().startswith(parts.scheme + "://"):
        hint = f" (did you mean http://{url}?)" if re.match(r"[A-Za-z0-9.-]+(:[0-9]+)?(/|$)", url) else ""
        raise Refused(f"allowed: an http:// or https:// URL{hint}")
    if "@" in parts.netloc:
        raise Refused("allowed: a URL without user name and password")
    if not host or not (HOST.fullmatch(host) or ":" in host) or port == 0 or parts.netloc.endswith(":"):
        raise Refused("allowed: an http:// or https:// URL with host and, if it is not the scheme's, port")
    if "?" in url or "#" in url:
        raise Refused("allowed: a URL without query and fragment; a path is a prefix")
    path = parts.path.rstrip("/")
    if path:
        _check_path(path, "a URL whose path")
    return f"{parts.scheme}://{parts.netloc}{path}"


url = Kind(
    "an http:// or https:// URL; a path is a prefix",
    _parse_url,
    schema={"type": "string", "pattern": "^https?://"},
    shown=_show_url,
)


def _parse_name(value: Any, _from_file: bool) -> str:
    name = check_text(value, what="a name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise Refused("allowed: a name of at most 64 letters, digits, _, . and -")
    return name


name = Kind(
    "a name of at most 64 letters, digits, _, . and -",
    _parse_name,
    schema={"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"},
)


def _parse_method(item: Any) -> str:
    if not isinstance(item, str) or not re.fullmatch(r"[A-Za-z][A-Za-z-]{0,31}", item):
        raise Refused("allowed: the name of a method such as POST")
    return item.upper()


def _parse_methods(value: Any, from_file: bool) -> tuple[str, ...] | None:
    if value is None and not from_file:
        return None
    if not isinstance(value, (list, tuple)) or not value:
        raise Refused
    return tuple(dict.fromkeys(each(value, _parse_method)))


methods = Kind(
    "a list of methods such as [POST]; without the key, every method",
    _parse_methods,
    lambda methods: list(methods),
    {"type": "array", "items": {"type": "string"}, "minItems": 1},
)


def _parse_pointer(value: Any, _from_file: bool) -> str:
    pointer = check_text(value, what="a JSON pointer", empty=True, trimmed=False)
    if pointer and not re.fullmatch(r"(?:/(?:[^~/]|~[01])*)+", pointer):
        raise Refused
    return pointer


pointer = Kind("a JSON pointer (RFC 6901) such as /naturalLanguageAnswer", _parse_pointer, schema={"type": "string"})


def _parse_meta(value: Any, _from_file: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused
    return {str(key): plain(item) for key, item in value.items()}


meta = Kind("a mapping, the fixed keys of the first event", _parse_meta, schema={"type": "object"})

_ORIGIN = re.compile(
    r"(https?)://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?|\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+"
)
_DEFAULT_PORTS = {("http", "80"), ("https", "443")}


def _parse_origin(item: Any) -> str:
    match = _ORIGIN.fullmatch(item.lower()) if isinstance(item, str) else None
    if match is None:
        raise Refused("allowed: an origin such as https://app.example.org, without path")
    # A browser's Origin never names the default port (RFC 6454 section 6.1).
    return f"{match[1]}://{match[2]}" if (match[1], match[3]) in _DEFAULT_PORTS else match[0]


def _parse_cors(value: Any, _from_file: bool) -> str | tuple[str, ...]:
    if value == "upstream":
        return "upstream"
    if not isinstance(value, (list, tuple)) or not value:
        raise Refused
    return tuple(dict.fromkeys(each(value, _parse_origin)))


cors = Kind(
    "upstream, or a list of origins such as [https://app.example.org]",
    _parse_cors,
    lambda cors: cors if isinstance(cors, str) else list(cors),
    {"anyOf": [{"const": "upstream"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    off=True,
)


def is_below(path: str, prefix: str) -> bool:
    """Say whether `path` is `prefix` or lies below it, by whole segments."""
    prefix = prefix.rstrip("/")
    return path.startswith(prefix) and (len(path) == len(prefix) or path[len(prefix)] == "/")


def host_name(host: str) -> str:
    """Return the name in a Host header: in lower case, without port and without the root's dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".")

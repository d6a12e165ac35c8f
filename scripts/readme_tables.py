"""Write the README's generated parts: the table of settings and the presets, from the models themselves.

python scripts/readme_tables.py            writes them into README.md
python scripts/readme_tables.py --check    exits 1 where they differ
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from sse_proxy.config import PRESETS, json_schema, preset_values

README = Path(__file__).parent.parent / "README.md"


def settings_table(properties: dict[str, Any], *, skip: tuple[str, ...] = ()) -> str:
    """Return a Markdown table of one section of the schema."""
    lines = ["| setting | default | what it does |", "|---|---|---|"]
    for name, schema in properties.items():
        if name in skip:
            continue
        default = schema.get("default", "")
        shown = "`off`" if default is False and "boolean" not in json.dumps(schema) else f"`{_plain(default)}`"
        shown = "" if default == "" else shown
        lines.append(f"| `{name}` | {shown} | {schema.get('description', '').replace('|', '&#124;')} |")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def preset(name: str) -> str:
    """Return a preset's full values, folded up."""
    values = preset_values(name)
    for route in values["routes"]:
        if route["stream"]:
            # Of a route only what is its own: the rest stands above it.
            route["stream"] = {key: value for key, value in route["stream"].items() if value != values.get(key)}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return f"<details><summary><code>{name}</code></summary>\n\n```yaml\n{text}```\n\n</details>"


def parts() -> dict[str, str]:
    """Return each generated part by its name."""
    schema = json_schema()
    definitions = schema["$defs"]
    streams = definitions["stream"]["properties"]
    return {
        "process settings": settings_table(schema["properties"], skip=("defaults", "upstreams", *streams)),
        "upstream settings": settings_table(definitions["upstream"]["properties"], skip=tuple(streams)),
        "stream settings": settings_table(streams),
        "presets": "\n".join(preset(name) for name in PRESETS),
    }


def rendered(text: str) -> str:
    """Return the README with its generated parts as they should be."""
    for name, part in parts().items():
        pattern = rf"(<!-- {name} -->\n)(?:(?!<!-- end).)*(<!-- end -->)"
        text, count = re.subn(pattern, lambda m, part=part: f"{m[1]}\n{part}\n\n{m[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"README.md: no place for {name!r}")
    return text


def main() -> int:
    """Write or check."""
    before = README.read_text(encoding="utf-8")
    after = rendered(before)
    if "--check" in sys.argv:
        return int(before != after)
    README.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

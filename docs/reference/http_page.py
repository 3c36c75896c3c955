"""Write docs/reference/http.md from the description of the HTTP interface."""

import sys
import textwrap
from pathlib import Path
from typing import Any

from panstream.server.auth import Limits
from panstream.server.errors import CODES
from panstream.server.http.openapi import describe

TARGET = Path(__file__).with_name("http.md")
OPENING = """# HTTP interface

What `panstream serve` answers. Made from the OpenAPI description, which a running server gives under `/openapi.json`,
by `http_page.py`. How to run it: [deployment](../howto/deploy.md).

Tokens go into the header `Authorization: Bearer TOKEN`; a server on loopback may run without any. Every refusal is
`{"error": {"code": ..., "message": ...}}`, with the codes [below](#refusals). Bodies, ids, addresses and query
strings are never logged.

A short conversation:

```text
$ curl -X POST http://127.0.0.1:8080/v1/producers/site-1
{"name":"site-1","id":"site-1@91f0c2a45be7d386","last":6,"in_flight":32}
$ curl --data-binary @events.csv -H 'Content-Type: text/csv' \\
    -H 'Panstream-Producer: site-1@91f0c2a45be7d386' -H 'Panstream-Sequence: 7' \\
    http://127.0.0.1:8080/v1/streams/clinic/events
{"new":true,"rows":5000,"skipped":{"count":1,"rows":[17]},"late":{"count":0,"rows":[]}}
$ curl -X POST http://127.0.0.1:8080/v1/queries/visitors/release
{"releases":[{"query":"visitors","series":"visitors","number":1,"value":1886.4,"interval":[1402.2,2416.3],...}]}
$ curl -N -H 'Accept: text/event-stream' http://127.0.0.1:8080/v1/releases
```
"""


def page() -> str:
    """Return the whole page."""
    described = describe()
    lines = [OPENING]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            lines += _operation(path, method, operation)
    lines += ["## Shapes", ""]
    for name, schema in described["components"]["schemas"].items():
        lines += _shape(name, schema)
    lines += ["## Refusals", "", "| code | status | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{code}` | {status} | {_cell(text)} |" for code, (status, text) in CODES.items()]
    lines += [
        "",
        "## Limits",
        "",
        "Defaults; sizes in bytes, times in seconds. Counted by token; connections also by address, while open.",
        "",
    ]
    lines += ["| limit | default |", "| --- | --- |"]
    limits = Limits()
    lines += [f"| `{name}` | {_figure(getattr(limits, name))} |" for name in Limits.__dataclass_fields__]
    return "\n".join(lines) + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    scope = operation.get("x-scope")
    lines = [f"## {method.upper()} {path}", "", _filled(operation["summary"]), ""]
    lines += [f"Scope: `{scope}`." if scope else "Open to all.", ""]
    if operation.get("parameters"):
        lines += ["| parameter | in | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{each['name']}` | {each['in']} | {_cell(each.get('description', ''))}{_rule(each['schema'])} |"
            for each in operation["parameters"]
        ]
        lines.append("")
    if "requestBody" in operation:
        lines += ["| body | meaning |", "| --- | --- |"]
        lines += [
            f"| `{kind}` | {_cell(each['schema'].get('description') or _kind(each['schema']))} |"
            for kind, each in operation["requestBody"]["content"].items()
        ]
        lines.append("")
    done = operation["responses"]["200"]
    shapes = ", ".join(f"`{kind}`{_shown(each['schema'])}" for kind, each in done["content"].items())
    done_text = "" if done["description"] == "OK" else _cell(done["description"])
    lines += [_filled(f"200: {shapes}. {done_text}".rstrip()), ""]
    refused = ", ".join(status for status in operation["responses"] if status != "200")
    return [*lines, f"Refused with: {refused}.", ""]


def _filled(text: str) -> str:
    return textwrap.fill(text, 115, break_long_words=False, break_on_hyphens=False)


def _shape(name: str, schema: dict[str, Any]) -> list[str]:
    lines = [f"### {name}", "", *([_filled(schema["description"]), ""] if "description" in schema else [])]
    required = schema.get("required", [])
    lines += ["| field | type | meaning |", "| --- | --- | --- |"]
    for field, each in schema["properties"].items():
        optional = "" if field in required else " (optional)"
        lines.append(f"| `{field}` | {_kind(each)}{optional} | {_cell(each.get('description', ''))} |")
    return [*lines, ""]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "oneOf" in schema:
        return " or ".join(_kind(each) for each in schema["oneOf"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return " or ".join(f'"{each}"' for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("type") == "object" and "properties" in schema:
        return "object: " + ", ".join(f"`{name}` {_kind(each)}" for name, each in schema["properties"].items())
    kinds = schema.get("type", "any")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"{text} ({schema['format']})" if "format" in schema else text


def _shown(schema: dict[str, Any]) -> str:
    return f" ({_kind(schema)})" if "$ref" in schema else ""


def _rule(schema: dict[str, Any]) -> str:
    parts = []
    if "enum" in schema:
        parts.append("one of " + ", ".join(str(each) for each in schema["enum"]))
    if "pattern" in schema:
        parts.append("`" + schema["pattern"].replace("|", "\\|") + "`")
    if "minimum" in schema:
        parts.append(f"{schema['minimum']} to {schema['maximum']}")
    if "maxLength" in schema:
        parts.append(f"at most {schema['maxLength']} characters")
    if "default" in schema:
        parts.append(f"{schema['default']} unless given")
    return f" ({', '.join(parts)})" if parts else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


if __name__ == "__main__":
    TARGET.write_text(page())
    sys.stdout.write(f"{TARGET.name} written\n")

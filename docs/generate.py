"""Writes the parts of the documentation that the code knows best; `--check` only compares.

    python docs/generate.py [--check]

config.md comes from the fields of `Config`, metrics.md from the metric catalogue, and
record.schema.json from `RunRecord`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from costlens.config import ENV_PREFIX, Config
from costlens.core.records import RunRecord
from costlens.export.catalog import MAX_SERIES, METRICS, NUM_OWN_VALUES

DOCS = Path(__file__).parent
SOURCE = "made by docs/generate.py; do not edit"


def write_config() -> str:
    """Return the page of all settings."""
    properties = Config.model_json_schema()["properties"]
    rows = [
        (
            f"`{ENV_PREFIX}{name.upper()}`",
            f"`{name}`",
            _allowed(schema),
            _default(schema),
            schema["description"],
        )
        for name, schema in properties.items()
    ]
    return _page(
        "config.py",
        "Settings",
        "An argument goes before the variable, the variable before the default. `costlens config` "
        "shows what applies and where it came from. An unknown `COSTLENS_*` variable is named in "
        "a warning, an unusable value is an error. `OTEL_*` variables belong to OpenTelemetry and "
        "are honoured as its specification says.",
        _table(("variable", "argument", "allowed", "default", "meaning"), rows),
    )


def write_metrics() -> str:
    """Return the page of all metrics and their attributes."""
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            f"`{metric.unit}`" if metric.unit else "",
            ", ".join(f"`{name}`" for name in metric.attributes),
            metric.description,
        )
        for metric in METRICS
    ]
    values: dict[str, set[str]] = {}
    for metric in METRICS:
        for name, allowed in metric.attributes.items():
            values.setdefault(name, set()).update(allowed)
    attributes = [(f"`{name}`", _values(name, values[name])) for name in sorted(values)]
    return _page(
        "export/catalog.py",
        "Metrics",
        "Every data point carries `costlens.run.id` and `costlens.rank` beside the attributes "
        "below. Units are UCUM; ratios lie between 0 and 1. What is unknown has no point. Counters "
        "begin at 0 with each attempt, those of `process.*` with the process. A rank has at most "
        f"{MAX_SERIES} series; these are at most {sum(metric.max_series for metric in METRICS)}.",
        _table(("metric", "kind", "unit", "attributes", "meaning"), rows),
        "## Attributes",
        _table(("attribute", "values"), attributes),
    )


def write_schema() -> str:
    """Return the JSON schema of the merged record."""
    schema = {
        "$comment": f"{SOURCE}. What `costlens report --json` prints.",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **RunRecord.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


PAGES = {
    "config.md": write_config,
    "metrics.md": write_metrics,
    "record.schema.json": write_schema,
}


def _page(source: str, title: str, *parts: str) -> str:
    return "\n\n".join((f"<!-- {SOURCE}. From {source}. -->", f"# {title}", *parts)) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _allowed(schema: dict[str, Any]) -> str:
    options = [option for option in schema.get("anyOf", [schema]) if option["type"] != "null"]
    kinds = {option["type"]: option for option in options}
    if "number" in kinds or "integer" in kinds:
        kind = "number" if "number" in kinds else "integer"
        return " ".join(["whole number" if kind == "integer" else kind, *_limits(kinds[kind])])
    (option,) = options
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if option["type"] == "boolean":
        return "`1` or `0`; also true, false, yes, no, on, off"
    if option["type"] == "array":
        return "names or globs, comma-separated"
    if "pattern" in option:
        return f"text like `{option['pattern']}`"
    longest = option.get("maxLength")
    return f"text, at most {longest} characters" if longest else "text"


def _limits(option: dict[str, Any]) -> list[str]:
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    limits = [f"{sign} {option[name]:g}" for name, sign in signs.items() if name in option]
    return [", ".join(limits)] if limits else []


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    if default is None or default == "":
        return "unset"
    if isinstance(default, bool):
        return f"`{int(default)}`"
    if isinstance(default, list):
        return f"`{','.join(default)}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _values(name: str, allowed: set[str]) -> str:
    if allowed:
        return ", ".join(f"`{value}`" for value in sorted(allowed))
    limit = NUM_OWN_VALUES.get(name, 1)
    return "given by the run" + (f", at most {limit}" if limit > 1 else ", one")


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` return 1 when one is not up to date."""
    stale = []
    for name, write in PAGES.items():
        path, text = DOCS / name, write()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Writes the parts of the documentation that the code knows best; `--check` only compares.

    python docs/generate.py [--check]

config.md comes from the fields of `Config`, metrics.md from the metric catalogue, phases.md from
the nesting table, and record.schema.json from `RunRecord`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from costlens.config import ENV_PREFIX, Config
from costlens.core import phases
from costlens.core.run_record import RunRecord
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


def write_phases() -> str:
    """Return the page of phases: what each means, and which wins when two nest."""
    body = next(
        node
        for node in ast.parse(Path(phases.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Phase"
    ).body
    meanings = {
        assignment.targets[0].id.lower(): docstring.value.value
        for assignment, docstring in pairwise(body)
        if isinstance(assignment, ast.Assign) and isinstance(docstring, ast.Expr)
    }
    rows = [
        (
            f"`{outer}`",
            meanings[outer],
            "yes" if phases.Phase[outer.upper()] in phases.ITERATION_PHASES else "",
            _winners(row, outer),
        )
        for outer, row in zip(phases.NAMES, phases.EFFECTIVE, strict=True)
    ]
    return _page(
        "core/phases.py",
        "Phases",
        "Every nanosecond of a process belongs to exactly one phase, and the phases add up to wall "
        "time. Where one opens inside another, the inner one gets the time if the outer one's row "
        "names it; otherwise the outer one keeps it. `iteration` says whether a phase counts in "
        "the duration of an iteration.",
        _table(("phase", "what its time is", "iteration", "gives way to"), rows),
    )


def _winners(row: Iterable[int], outer: str) -> str:
    inner = [
        name
        for name, to in zip(phases.NAMES, row, strict=True)
        if phases.NAMES[to] == name != outer
    ]
    kept = [name for name in phases.NAMES if name not in {*inner, outer, "idle_device"}]
    if len(inner) > len(kept):
        return "all" + (f" but {', '.join(f'`{name}`' for name in kept)}" if kept else "")
    return ", ".join(f"`{name}`" for name in inner)


PAGES = {
    "config.md": write_config,
    "metrics.md": write_metrics,
    "phases.md": write_phases,
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
        return _names(option["items"].get("enum"))
    if "pattern" in option:
        return f"text like `{option['pattern']}`"
    longest = option.get("maxLength")
    return f"text, at most {longest} characters" if longest else "text"


def _names(allowed: list[str] | None) -> str:
    if allowed is None:
        return "names or globs, comma-separated"
    return f"`none`, or comma-separated: {', '.join(f'`{name}`' for name in allowed)}"


def _limits(option: dict[str, Any]) -> list[str]:
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    limits = [f"{sign} {option[name]:g}" for name, sign in signs.items() if name in option]
    return [", ".join(limits)] if limits else []


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    if default in (None, "", []):
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

"""How the answers are shown: a line each with its fix below, or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costlens.cli.doctor.answer import Status, worst
from costlens.cli.doctor.running import Outcome

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["DOCTOR_SCHEMA", "make_document", "make_table"]

DOCTOR_SCHEMA = "costlens.doctor/1"

_STYLES = {
    Status.OK: "green",
    Status.WARNING: "bold yellow",
    Status.PROBLEM: "bold red",
    Status.SKIPPED: "dim",
}


def make_document(outcomes: Sequence[Outcome], settings: Sequence[Mapping[str, Any]]) -> str:
    """Return everything as JSON."""
    document = {
        "schema_version": DOCTOR_SCHEMA,
        "status": worst(outcome.status for outcome in outcomes).value,
        "checks": [
            {
                "name": outcome.name,
                "status": outcome.status.value,
                "answers": [
                    {
                        "status": answer.status.value,
                        "text": answer.text,
                        "fix": answer.fix,
                        "details": dict(answer.details),
                    }
                    for answer in outcome.answers
                ],
            }
            for outcome in outcomes
        ],
        "settings": [*settings],
    }
    return json.dumps(document, indent=2)


def make_table(outcomes: Sequence[Outcome]) -> Table:
    """Return everything for people."""
    from rich.table import Table
    from rich.text import Text

    from costlens.export.figures import show_text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for outcome in outcomes:
        for number, answer in enumerate(outcome.answers):
            text = Text(show_text(answer.text), "dim" if answer.status is Status.SKIPPED else "")
            if answer.fix:
                text.append(f"\n→ {show_text(answer.fix)}", "cyan")
            name = outcome.name if number == 0 else ""
            table.add_row(Text(answer.status.value, _STYLES[answer.status]), name, text)
    return table

"""Makes one HTML document of a page: the template, the style, the script and the data in it.

Everything from outside passes the template's escaping or, as data for the charts, JSON in which no
character means anything to HTML. Of scripts, only those whose digest the document names may run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from costlens.export.figures import show_time
from costlens.export.page.page import Page

if TYPE_CHECKING:
    import jinja2

__all__ = ["render_page"]

_ASSETS = files("costlens.export.page") / "assets"
_NO_BREAK = "\N{NO-BREAK SPACE}"
# Units as `export/figures.py` writes them; three capitals are a currency.
_UNITS = (
    "%|µs|ms|s|min|h|d|W|Wh|kWh|J|B|[kMGT]B|[KMGT]iB|T?FLOP/s|[A-Z]{3}|million|billion|CPUs?|GPUs?"
)
_BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:{_UNITS})(?![\w/]))|(?<=\d[dhm]) (?=\d)")
# What would end a script, begin a comment in it, or break a line of JavaScript.
_JSON_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render_page(page: Page, bundle: str) -> str:
    """Return the document.

    Args:
        page: What it shows.
        bundle: The script of the charting library (see ``bundle``).
    """
    scripts = [_inert(bundle), _inert(_read("page.js"))]
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    template = _environment().get_template("page.html.j2")
    return template.render(
        page=page,
        style=_read("colours.css") + _read("page.css"),
        data=_encode(page),
        bundle=scripts[0],
        script=scripts[1],
        policy=(
            f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        made=f"{show_time(page.made_s)} UTC",
    )


class _Verbatim(str):
    """A text that somebody may copy: the template escapes it and changes nothing else."""

    __slots__ = ()


def _keep_together(value: object) -> object:
    """Return a text of the page in which no line ends between a number and its unit.

    Everything that the template shows passes here, so no section has to think of it.
    """
    if type(value) is not str:  # markup is done, and what may be copied stays as it is
        return value
    return _BEFORE_UNIT.sub(_NO_BREAK, value)


def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_keep_together,
    )
    environment.filters["verbatim"] = _Verbatim
    return environment


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _encode(page: Page) -> str:
    document: dict[str, Any] = {
        "columns": _turn(page.rows.rows),
        "charts": {chart.key: chart.spec for part in page.sections for chart in part.charts},
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.translate(_JSON_ESCAPES)


def _turn(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values by key: hundreds of rows that repeat their keys are twice as large."""
    keys = {key: None for row in rows for key in row}  # in order, each once
    return {key: [row.get(key) for row in rows] for key in keys}


def _inert(script: str) -> str:
    """Return a script without what would end it where it stands inside HTML."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    # Browsers hash what stands between the tags.
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

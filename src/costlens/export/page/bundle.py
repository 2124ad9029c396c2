"""The charting library as one script: Vega-Lite, as the wheel of vl-convert ships it.

Nothing of it is in this repository, and nothing is fetched: decision 21 says why this one.
"""

from __future__ import annotations

from costlens.errors import MissingExtraError

__all__ = ["load_bundle"]

_INSTALL = (
    "the HTML report needs {package}, which is not installed; install it with "
    "pip install 'costlens[html]', or run costlens report without --html"
)


def load_bundle() -> str:
    """Return the script that defines ``vegaEmbed``; takes about a second.

    Raises:
        MissingExtraError: If vl-convert or Jinja is not installed.
    """
    try:
        import jinja2  # noqa: F401 - told here, before anything is read
    except ImportError as error:
        raise MissingExtraError(_INSTALL.format(package="Jinja2")) from error
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtraError(_INSTALL.format(package="vl-convert-python")) from error
    return str(vl_convert.javascript_bundle())  # type: ignore[call-arg] # its stub lacks the default

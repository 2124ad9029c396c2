"""Runs the grammars in Node; ``install.sh`` installs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["FOLDER", "complaints", "missing"]

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FOLDER = CACHE / "costlens-tests" / "grammars"


def missing() -> str:
    """Return why queries cannot be parsed here; empty where they can."""
    if shutil.which("node") is None:
        return "there is no node"
    lock, installed = HERE / "package-lock.json", FOLDER / "installed.json"
    if not installed.exists() or installed.read_text() != lock.read_text():
        return "tests/grammars/install.sh has not been run"
    return ""


def complaints(queries: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return what the grammar of each query's language does not understand, in order.

    Args:
        queries: Language (promql, logql, traceql) and text, without Grafana's variables.
    """
    asked = [{"language": language, "query": query} for language, query in queries]
    done = subprocess.run(
        ["node", str(HERE / "parse.mjs"), str(FOLDER)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[list[str]] = json.loads(done.stdout)
    assert len(found) == len(asked)
    return found

"""What importing costlens loads: next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "fsspec",
    "lightning",
    "numpy",
    "opentelemetry",
    "pydantic",
    "pynvml",
    "pytorch_lightning",
    "rich",
    "structlog",
    "torch",
)


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_costlens_loads_none_of_its_dependencies() -> None:
    """`import costlens` is free for a program that may never start a run."""
    loaded = modules_after("import costlens\ndir(costlens)")
    assert loaded & set(HEAVY) == set()
    assert {name for name in loaded if name.startswith("costlens")} == {"costlens"}


@pytest.mark.parametrize(
    "statement",
    ["from costlens import start", "from costlens import Config", "import costlens.lightning"],
)
def test_a_door_loads_no_framework_and_no_backend(statement: str) -> None:
    """Torch and Lightning are the user's to load; exporters, NVML and stores load when needed."""
    not_yet = {"torch", "lightning", "pytorch_lightning", "opentelemetry.sdk", "pynvml", "fsspec"}
    assert modules_after(statement) & not_yet == set()


def test_the_version_is_that_of_the_distribution() -> None:
    """There is one version, and asking for it loads nothing else of costlens."""
    loaded = modules_after(
        "import costlens, importlib.metadata as m\n"
        "assert costlens.__version__ == m.version('costlens')"
    )
    assert {name for name in loaded if name.startswith("costlens")} == {"costlens"}

"""Compiles the stand-in driver, and loads it into this process in the driver's place.

nvidia-ml-py asks the system for ``libnvidia-ml.so.1``; once a library of that name is in the
process, it gets that one. ``driver.c`` says what it answers.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costlens.errors import MissingExtraError, RunStateError

__all__ = ["LIBRARY", "StandIn", "compile_driver", "load_stand_in", "write_scenario"]

LIBRARY = "libnvidia-ml.so.1"

_SOURCE = Path(__file__).with_name("driver.c")
_COMPILERS = ("gcc", "cc", "clang")
_COMPILE_TIMEOUT_S = 60

# What is not a line between its points.
_STEPS = ("error", "lost", "clock_reasons", "xids", "processes", "mig_mode")
_COUNTERS = ("_bytes", "_kibibytes", "_millijoules", "_errors", "_replays", "_corrected")
_SINGULAR: Mapping[str, str] = {"errors": "error", "devices": "device"}
_NO_COUNTERS = ("memory_used_bytes", "memory_total_bytes")

Scenario = dict[str, Any]
"""JSON: what the driver says of itself, ``devices``, and ``errors`` by function."""


def compile_driver(folder: Path) -> Path:
    """Return the stand-in library, compiled into ``folder``; about 0.3 s.

    Raises:
        MissingExtraError: If there is no C compiler, or it fails.
    """
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise MissingExtraError(
            f"fake GPUs need a C compiler, and none of {', '.join(_COMPILERS)} is installed: "
            "apt-get install gcc, or leave --fake-gpus out"
        )
    library = folder / LIBRARY
    flags = ("-O1", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")
    result = subprocess.run(  # noqa: S603 - our own source, and a compiler from the path
        [compiler, *flags, "-o", str(library), str(_SOURCE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMPILE_TIMEOUT_S,
    )
    if result.returncode != 0:
        raise MissingExtraError(f"{compiler} could not compile the fake GPUs: {result.stderr}")
    return library


class StandIn:
    """The stand-in driver in this process; it stays there until the process ends.

    Args:
        library: The compiled library.

    Raises:
        RunStateError: If the library of a real driver is in the process already.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        if not hasattr(ctypes.CDLL(LIBRARY), "stand_in_load"):
            raise RunStateError(
                f"fake GPUs cannot take the place of {LIBRARY}, which this process has loaded: "
                "run costlens demo --fake-gpus as a process of its own"
            )
        self._library.stand_in_num_calls.restype = ctypes.c_ulong

    def load(self, scenario: Scenario) -> None:
        """Become the driver of the scenario's devices, at its time 0."""
        with tempfile.NamedTemporaryFile("w", suffix=".scenario", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _flatten("", scenario))
            file.flush()
            if self._library.stand_in_load(file.name.encode()) != 0:
                raise OSError(f"the scenario {file.name} cannot be read")

    def unload(self) -> None:
        """Behave as if there were no driver."""
        self._library.stand_in_unload()

    def set_time(self, time_s: float) -> None:
        """Stop the scenario's clock at ``time_s`` >= 0; a negative time lets it run."""
        self._library.stand_in_set_time(ctypes.c_double(time_s))

    def num_calls(self, function: str) -> int:
        """Return how often a function of NVML was called since the scenario was loaded."""
        return int(self._library.stand_in_num_calls(function.encode()))


@functools.cache
def load_stand_in() -> StandIn:
    """Return the stand-in driver of this process, compiled and loaded at the first call.

    Raises:
        MissingExtraError: If there is no C compiler.
        RunStateError: If the library of a real driver is in the process already.
    """
    with tempfile.TemporaryDirectory(prefix="costlens-fake-gpus-") as folder:
        return StandIn(compile_driver(Path(folder)))


def write_scenario(scenario: Scenario, path: Path) -> None:
    """Write a scenario as the lines that ``driver.c`` reads from ``FAKE_NVML_SCENARIO``."""
    path.write_text("".join(f"{line}\n" for line in _flatten("", scenario)), encoding="utf-8")


def _flatten(place: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            key = _SINGULAR.get(name, name)
            yield from _flatten(f"{place}.{key}" if place else key, inner)
    elif isinstance(value, str):
        yield f"{place}\ts\t{value}"
    elif isinstance(value, (int, float)):
        yield f"{place}\tp\t0:{value}"
    elif isinstance(value, (list, tuple)):
        if value and isinstance(value[0], dict):
            for index, inner in enumerate(value):
                yield from _flatten(f"{place}.{index}", inner)
        else:
            points = " ".join(f"{time}:{number}" for time, number in value)
            yield f"{place}\t{_kind(place)}\t{points}"


def _kind(place: str) -> str:
    parts = place.split(".")
    if any(part in _STEPS for part in parts):
        return "p"
    name = parts[-1]
    return "c" if name.endswith(_COUNTERS) and name not in _NO_COUNTERS else "n"

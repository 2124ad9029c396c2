"""The checks of ``costlens doctor``, in the order in which they are shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from costlens.cli.doctor.answer import Check
from costlens.cli.doctor.clock import check_clock
from costlens.cli.doctor.endpoint import check_otlp, check_signal, list_signals
from costlens.cli.doctor.gpus import check_gpus
from costlens.cli.doctor.precision import check_precision
from costlens.cli.doctor.price import check_price
from costlens.cli.doctor.scheduler import check_scheduler
from costlens.cli.doctor.stores import check_checkpoints, check_run_folder
from costlens.cli.doctor.versions import check_versions

if TYPE_CHECKING:
    from costlens.export.otel_settings import Signal
    from costlens.observe.gpu_survey import GpuSurvey

__all__ = ["list_checks"]

T = TypeVar("T")


class Once(Generic[T]):
    """What several checks ask, found by the first of them; the others wait for it.

    Args:
        find: Finds it.
    """

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: list[T] = []

    def __call__(self) -> T:
        """Return it."""
        with self._lock:
            if not self._found:
                self._found.append(self._find())
            return self._found[0]


_SLOW_DRIVER = "does nvidia-smi answer? A driver that hangs mostly needs the machine restarted"
_SLOW_TORCH = "ask again: torch loads faster the second time; if not, its disk or the CPUs are busy"


def list_checks() -> list[Check]:
    """Return the checks; one for each signal that telemetry has."""
    find_gpus = Once(_survey)
    signals = [_check_signal(signal) for signal in list_signals()]
    return [
        Check("versions", check_versions),
        Check("run folder", check_run_folder),
        Check("checkpoints", check_checkpoints),
        Check("otlp", check_otlp),
        *signals,
        Check("clock", lambda _: check_clock()),
        Check("gpus", lambda _: check_gpus(find_gpus), _SLOW_DRIVER),
        Check("precision", lambda config: check_precision(config, find_gpus), _SLOW_TORCH),
        Check("scheduler", lambda _: check_scheduler()),
        Check("price", lambda config: check_price(config, find_gpus), _SLOW_DRIVER),
    ]


def _check_signal(signal: Signal) -> Check:
    return Check(f"otlp {signal}", lambda _: check_signal(signal))


def _survey() -> GpuSurvey:
    from costlens.observe.gpu_survey import survey_gpus

    return survey_gpus()

"""The meters of a rank at any time: between two readings they go on evenly."""

from __future__ import annotations

import numpy as np

from benchmarks.diagnosis.trace import DEVICE_METERS, METERS, Trace

__all__ = ["Meters"]


class Meters:
    """Reads the meters of a trace.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        columns = np.asarray(trace.meters, dtype=float).T
        self._values = dict(zip(METERS, columns, strict=True))
        host_s, device_s = np.asarray(trace.meter_times_s), np.asarray(trace.device_times_s)
        self._times_s = {name: device_s if name in DEVICE_METERS else host_s for name in METERS}

    def read(self, name: str, now_s: float) -> float:
        """Return what a meter shows at ``now_s``."""
        return float(np.interp(now_s, self._times_s[name], self._values[name]))

    def read_many(self, name: str, times_s: np.ndarray) -> np.ndarray:
        """Return what a meter shows at each of these times."""
        return np.interp(times_s, self._times_s[name], self._values[name])

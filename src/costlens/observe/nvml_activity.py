"""How busy the units of a device were between two samples, where the driver offers it (GPM).

Hopper and later. Two buffers take turns, so that each interval is measured from end to end.
"""

from __future__ import annotations

import contextlib
from typing import Any

from costlens.observe.nvml_devices import Device
from costlens.observe.nvml_session import CLOSED, LOST, PERMANENT, Refusal, Session

__all__ = ["UNITS", "Activity"]

UNITS = {2: "sm", 5: "tensor", 10: "dram"}
"""Units by their metric id in nvml.h: SM, any tensor operation, DRAM bandwidth."""


class Activity:
    """The activity of one device.

    Args:
        session: The open session.
        device: The device.
    """

    def __init__(self, session: Session, device: Device) -> None:
        self._session = session
        self._device = device
        self._refusal: str | None = None
        self._is_ready = False
        self._buffers: list[Any] = []
        self._has_first = False
        self._asked: Any = None

    def take(self) -> tuple[dict[str, float], str | None]:
        """Return the share of what each unit could do since the last call, and why there is none.

        Raises:
            Refusal: If the device is lost, or the session is not open any more.
        """
        if self._refusal is not None:
            return {}, self._refusal
        try:
            return self._take(), None
        except Refusal as refusal:
            if refusal.word in LOST or refusal.word == CLOSED:
                raise
            if refusal.word in PERMANENT:
                self._refusal = refusal.word
            self._has_first = False
            return {}, refusal.word

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self._buffers:
            with contextlib.suppress(Refusal):
                self._session.call("nvmlGpmSampleFree", buffer)
        self._buffers.clear()
        self._is_ready = self._has_first = False

    def _take(self) -> dict[str, float]:
        if not self._is_ready:
            self._prepare()
        self._buffers.reverse()
        newest = self._buffers[0]
        instance = self._device.candidate.instance
        if instance is None:
            self._session.call("nvmlGpmSampleGet", self._device.board, newest)
        else:
            self._session.call("nvmlGpmMigSampleGet", self._device.board, instance[0], newest)
        if not self._has_first:
            self._has_first = True
            return {}
        return self._compare()

    def _prepare(self) -> None:
        support = self._session.call("nvmlGpmQueryDeviceSupport", self._device.board)
        if not support.isSupportedDevice:
            raise Refusal("not_supported")
        while len(self._buffers) < 2:
            self._buffers.append(self._session.call("nvmlGpmSampleAlloc"))
        # 16 KiB with room for all metrics there are: made once.
        self._asked = self._session.new("c_nvmlGpmMetricsGet_t")
        self._asked.version = 1
        self._asked.numMetrics = len(UNITS)
        for metric, number in zip(self._asked.metrics, UNITS, strict=False):
            metric.metricId = number
        self._is_ready = True

    def _compare(self) -> dict[str, float]:
        asked = self._asked
        asked.sample1, asked.sample2 = self._buffers[1], self._buffers[0]
        self._session.call("nvmlGpmMetricsGet", asked)
        return {
            unit: min(100.0, max(0.0, metric.value)) / 100
            for metric, unit in zip(asked.metrics, UNITS.values(), strict=False)
            # What is not a number compares with nothing.
            if metric.nvmlReturn == 0 and metric.value >= 0
        }

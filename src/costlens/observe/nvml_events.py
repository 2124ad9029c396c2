"""Error codes (XIDs) as the driver announces them: each is taken once, by its device."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from costlens.observe.nvml_devices import Device
from costlens.observe.nvml_session import CLOSED, Refusal, Session

__all__ = ["XidWatch"]

_XID = 0x8  # nvmlEventTypeXidCriticalError
_MAX_AT_ONCE = 32


class XidWatch:
    """Listens for the error codes of some devices.

    Args:
        session: The open session.
        devices: The devices; slices of one board share its codes.

    Attributes:
        absent: Why codes of a device cannot be had, by its UUID.
    """

    def __init__(self, session: Session, devices: Sequence[Device]) -> None:
        self.absent: dict[str, str] = {}
        self._session = session
        self._set: Any = None
        self._uuids: dict[int, list[str]] = {}
        try:
            self._set = session.call("nvmlEventSetCreate")
        except Refusal as refusal:
            self.absent = dict.fromkeys((d.candidate.uuid for d in devices), refusal.word)
            return
        for device in devices:
            self._register(device)

    def _register(self, device: Device) -> None:
        uuid, address = device.candidate.uuid, _address(device.board)
        if address not in self._uuids:
            try:
                self._session.call("nvmlDeviceRegisterEvents", device.board, _XID, self._set)
            except Refusal as refusal:
                self.absent[uuid] = refusal.word
                return
        self._uuids.setdefault(address, []).append(uuid)

    def take(self) -> dict[str, tuple[int, ...]]:
        """Return the codes that came since the last call, by UUID; never waits.

        Raises:
            Refusal: If the session is not open any more.
        """
        found: dict[str, tuple[int, ...]] = {}
        if not self._uuids:
            return found
        for _ in range(_MAX_AT_ONCE):
            try:
                event = self._session.call("nvmlEventSetWait", self._set, 0)
            except Refusal as refusal:
                if refusal.word == CLOSED:
                    raise
                break  # nothing more has come
            for uuid in self._uuids.get(_address(event.device), ()):
                found[uuid] = (*found.get(uuid, ()), int(event.eventData))
        return found

    def close(self) -> None:
        """Stop listening."""
        if self._set is not None:
            with contextlib.suppress(Refusal):
                self._session.call("nvmlEventSetFree", self._set)
        self._set = None
        self._uuids.clear()


def _address(handle: Any) -> int:  # noqa: ANN401 - a handle
    return ctypes.cast(handle, ctypes.c_void_p).value or 0

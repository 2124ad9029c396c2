"""Lists the devices of the node as the driver knows them, MIG slices among them.

Asked once when a run starts, again after a fork, and when a lost device may be back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from costlens.account.device_meter import DeviceIdentity
from costlens.core.device_records import GpuDriverPart
from costlens.observe.nvml_session import Refusal, Session
from costlens.observe.visible_devices import Candidate

__all__ = ["SIMULATED", "Device", "describe_driver", "identify", "list_devices"]

SIMULATED = "simulated"
"""How the version of a driver begins whose devices do not exist."""

_MAX_NAME = 100
_MAX_BOARDS = 64


@dataclass(frozen=True, slots=True)
class Device:
    """A device with its handles, which are good for one opening of the session.

    Args:
        candidate: How it is told from others.
        handle: Its own.
        board: That of the whole GPU; the same as ``handle`` but for a MIG slice.
    """

    candidate: Candidate
    handle: Any
    board: Any


def list_devices(session: Session) -> list[Device]:
    """Return all devices that the driver lists and that can be named; bounded.

    Raises:
        Refusal: If the driver does not say how many there are.
    """
    found: list[Device] = []
    for index in range(min(session.call("nvmlDeviceGetCount"), _MAX_BOARDS)):
        try:
            board = session.call("nvmlDeviceGetHandleByIndex", index)
            uuid = _text(session.call("nvmlDeviceGetUUID", board))
        except Refusal:
            continue  # lost, or hidden from this user: it cannot be ours
        pci_id = _pci_id(session, board)
        model = _ask(session, "nvmlDeviceGetName", board) or ""
        whole = Device(Candidate(uuid, pci_id, model), board, board)
        found.append(whole)
        found.extend(_list_slices(session, whole))
    return found


def _list_slices(session: Session, whole: Device) -> Iterator[Device]:
    board, candidate = whole.board, whole.candidate
    try:
        current, _ = session.call("nvmlDeviceGetMigMode", board)
        num_slices = session.call("nvmlDeviceGetMaxMigDeviceCount", board) if current else 0
    except Refusal:
        return
    for index in range(num_slices):
        try:
            handle = session.call("nvmlDeviceGetMigDeviceHandleByIndex", board, index)
            name = _text(session.call("nvmlDeviceGetUUID", handle))
            instance = (
                int(session.call("nvmlDeviceGetGpuInstanceId", handle)),
                int(session.call("nvmlDeviceGetComputeInstanceId", handle)),
            )
        except Refusal:
            continue  # an index that no slice has
        parts = (name, candidate.pci_id, candidate.model, candidate.uuid, instance)
        yield Device(Candidate(*parts), handle, board)


def identify(session: Session, device: Device, *, is_simulated: bool) -> DeviceIdentity:
    """Return what a device is."""
    candidate = device.candidate
    num_slices = None
    if candidate.instance is not None:
        try:
            attributes = session.call("nvmlDeviceGetAttributes", device.handle)
            num_slices = int(attributes.computeInstanceSliceCount)
        except Refusal:
            pass
    return DeviceIdentity(
        uuid=candidate.uuid,
        name=_ask(session, "nvmlDeviceGetName", device.handle) or candidate.model or None,
        serial=_ask(session, "nvmlDeviceGetSerial", device.board),
        pci_id=candidate.pci_id or None,
        parent_uuid=candidate.parent_uuid,
        mig_slices=num_slices,
        is_simulated=is_simulated,
    )


def describe_driver(session: Session) -> GpuDriverPart:
    """Return the versions that the driver tells; the session is open."""
    cuda_version = None
    try:
        number = int(session.call("nvmlSystemGetCudaDriverVersion_v2"))
        cuda_version = f"{number // 1000}.{number % 1000 // 10}"
    except Refusal:
        pass
    return GpuDriverPart(
        state="ok",
        driver_version=_ask(session, "nvmlSystemGetDriverVersion"),
        nvml_version=_ask(session, "nvmlSystemGetNVMLVersion"),
        cuda_version=cuda_version,
    )


def _pci_id(session: Session, handle: Any) -> str:  # noqa: ANN401 - a handle
    try:
        info = session.call("nvmlDeviceGetPciInfo", handle)
    except Refusal:
        return ""
    return f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"


def _ask(session: Session, function: str, *arguments: object) -> str | None:
    try:
        return _text(session.call(function, *arguments)) or None
    except Refusal:
        return None


def _text(value: str | bytes) -> str:
    return (value.decode(errors="replace") if isinstance(value, bytes) else value)[:_MAX_NAME]

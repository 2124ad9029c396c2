"""What the driver says of a machine's GPUs before anything runs on them: asked once, then closed.

For whoever asks before a run (``costlens doctor``); a run samples through ``nvml.py``. Never
initialises CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from costlens.core.device_records import GpuDriverPart
from costlens.observe.nvml_devices import Device, describe_driver, list_devices
from costlens.observe.nvml_session import Refusal, Session
from costlens.observe.placement.visible import read_visible
from costlens.observe.visible_devices import Candidate, Selection, select_visible

__all__ = ["GpuSurvey", "survey_gpus"]

_KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
_DEVICE_FILE = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class GpuSurvey:
    """The GPUs of this machine, as this process could use them.

    Args:
        reason: Why the driver's library cannot be used, such as ``version_mismatch``; None while
            it can.
        has_kernel_driver: Whether the kernel has NVIDIA's driver loaded, which only a machine with
            GPUs has.
        driver: Its versions.
        listed: All boards and MIG slices that the driver lists.
        num_refused: Boards that it counts and does not tell of: lost, or hidden from this user.
        selection: Those that CUDA shows to this process, and what is wrong with the variable.
        visible: CUDA_VISIBLE_DEVICES; None where it is not set.
        uncut: Boards in MIG mode that no slice was cut from: CUDA cannot use them.
        capability: Compute capability of the first visible device; None where it is not told.
    """

    reason: str | None = None
    has_kernel_driver: bool = False
    driver: GpuDriverPart | None = None
    listed: tuple[Candidate, ...] = ()
    num_refused: int = 0
    selection: Selection = field(default_factory=lambda: Selection(()))
    visible: str | None = None
    uncut: tuple[Candidate, ...] = ()
    capability: tuple[int, int] | None = None


def survey_gpus() -> GpuSurvey:
    """Return what there is; takes seconds where no GPU is awake."""
    has_kernel_driver = _KERNEL_DRIVER.exists() or _DEVICE_FILE.exists()
    session = Session()
    session.load()
    if not session.open():
        return GpuSurvey(reason=session.reason, has_kernel_driver=has_kernel_driver)
    try:
        return _look(session, has_kernel_driver=has_kernel_driver)
    except Refusal as refusal:
        return GpuSurvey(reason=refusal.word, has_kernel_driver=has_kernel_driver)
    finally:
        session.close()


def _look(session: Session, *, has_kernel_driver: bool) -> GpuSurvey:
    devices = list_devices(session)
    listed = tuple(device.candidate for device in devices)
    boards = [device for device in devices if device.candidate.instance is None]
    visible, order = read_visible()
    selection = select_visible(visible, order, listed)
    cut = {candidate.parent_uuid for candidate in listed if candidate.instance is not None}
    return GpuSurvey(
        has_kernel_driver=has_kernel_driver,
        driver=describe_driver(session),
        listed=listed,
        num_refused=max(0, int(session.call("nvmlDeviceGetCount")) - len(boards)),
        selection=selection,
        visible=visible,
        uncut=tuple(
            board.candidate
            for board in boards
            if _is_in_mig_mode(session, board) and board.candidate.uuid not in cut
        ),
        capability=_find_capability(session, devices, selection),
    )


def _is_in_mig_mode(session: Session, board: Device) -> bool:
    try:
        current, _ = session.call("nvmlDeviceGetMigMode", board.board)
    except Refusal:
        return False
    return bool(current)


def _find_capability(
    session: Session, devices: list[Device], selection: Selection
) -> tuple[int, int] | None:
    if not selection.devices:
        return None
    board = next(each.board for each in devices if each.candidate == selection.devices[0])
    try:
        major, minor = session.call("nvmlDeviceGetCudaComputeCapability", board)
    except Refusal:
        return None
    return int(major), int(minor)

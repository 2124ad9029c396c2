"""Can the GPUs be seen, and are they those that were meant?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from costlens.cli.doctor.answer import Answer, ok, problem, skipped, warning

if TYPE_CHECKING:
    from costlens.observe.gpu_survey import GpuSurvey

__all__ = ["check_gpus"]

_NO_DRIVER = frozenset({"no_library", "no_driver"})
_REASONS = {
    "no_library": (
        "the kernel has NVIDIA's driver and libnvidia-ml.so.1 is not found",
        "set NVIDIA_DRIVER_CAPABILITIES=compute,utility in a container, else install its tools",
    ),
    "no_package": ("nvidia-ml-py is not installed", "pip install nvidia-ml-py"),
    "no_driver": (
        "the driver is installed and not loaded",
        "modprobe nvidia, or reboot after an update of the driver",
    ),
    "version_mismatch": (
        "the driver's library and its kernel module are of two versions",
        "reboot, or unload and load the kernel module: the driver was updated under way",
    ),
    "no_permission": (
        "this user may not talk to the driver",
        "give access to /dev/nvidia*, such as by the group video, or the device cgroup",
    ),
}
_CUDA = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*['\"]([0-9]+)\.([0-9]+)['\"]", re.MULTILINE)


def check_gpus(find: Callable[[], GpuSurvey]) -> Iterator[Answer]:
    """Yield which GPUs a run here would have, and why not those that there are.

    Args:
        find: Asks the driver.
    """
    seen = find()
    if seen.reason is not None:
        yield _explain(seen)
        return
    boards = [each for each in seen.listed if each.instance is None]
    if not boards and not seen.num_refused:
        yield skipped("the driver lists no GPU: a run here computes on the CPU")
        return
    yield from _tell_visible(seen, len(boards))
    yield from _tell_broken(seen)
    yield from _tell_torch(seen)


def _explain(seen: GpuSurvey) -> Answer:
    if seen.reason in _NO_DRIVER and not seen.has_kernel_driver:
        return skipped("there is no NVIDIA driver: a run here computes on the CPU")
    reason = seen.reason or "unknown_error"
    text, fix = _REASONS.get(reason, (f"the driver refuses: {reason}", "nvidia-smi may say more"))
    return problem(
        f"{text}: devices are not watched, and CUDA may not work", fix, {"reason": seen.reason}
    )


def _tell_visible(seen: GpuSurvey, num_boards: int) -> Iterator[Answer]:
    shown = [each.model or each.uuid for each in seen.selection.devices]
    driver = seen.driver
    facts = {
        "driver_version": driver and driver.driver_version,
        "cuda_version": driver and driver.cuda_version,
        "devices": [each.uuid for each in seen.selection.devices],
        "num_boards": num_boards,
    }
    for told in seen.selection.problems:
        yield warning(told, "nvidia-smi -L lists what there is")
    if not shown:
        yield problem(
            f"{num_boards} GPUs are there and none is visible to this process",
            "unset CUDA_VISIBLE_DEVICES, or name devices that nvidia-smi -L lists",
            facts,
        )
        return
    slices = sum(each.instance is not None for each in seen.selection.devices)
    kind = " (a MIG slice: CUDA shows one to a process)" if slices else ""
    hidden = "" if slices or len(shown) >= num_boards else f"; {num_boards - len(shown)} are hidden"
    version = f", driver {driver.driver_version}" if driver and driver.driver_version else ""
    yield ok(f"{_count(shown)}{kind}{hidden}{version}", facts)
    if seen.selection.order == "assumed":
        yield warning(
            "the models differ, and CUDA's order of them is not told",
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that device numbers mean what nvidia-smi shows",
        )


def _tell_broken(seen: GpuSurvey) -> Iterator[Answer]:
    if seen.num_refused:
        yield problem(
            f"{seen.num_refused} GPUs are counted and cannot be asked: lost, or hidden from this "
            "user",
            "nvidia-smi and dmesg tell which; a lost one needs a reset or a reboot",
        )
    for board in seen.uncut:
        yield problem(
            f"{board.model or board.uuid} is in MIG mode without a slice, so CUDA cannot use it",
            "make slices with nvidia-smi mig -cgi … -C, or leave MIG mode with nvidia-smi -mig 0",
        )


def _tell_torch(seen: GpuSurvey) -> Iterator[Answer]:
    """Yield whether the installed torch can use the GPUs, as its files say."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    built_for = _CUDA.search(text)
    if built_for is None:
        yield problem(
            "the installed torch is built without CUDA: no GPU would be used",
            "install a CUDA build of torch: https://pytorch.org/get-started/locally/",
        )
        return
    served = seen.driver and seen.driver.cuda_version
    if served and int(built_for[1]) > int(served.partition(".")[0]):
        yield problem(
            f"torch is built for CUDA {built_for[1]}.{built_for[2]}, and the driver serves CUDA "
            f"{served} at most",
            "update the driver, or install a torch for an older CUDA",
        )


def _count(names: list[str]) -> str:
    counted = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted)

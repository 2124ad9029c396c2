"""What would a run compute in, and could the hardware do what is asked?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from costlens.cli.doctor.answer import Answer, ok, problem, skipped
from costlens.config import Config
from costlens.errors import ConfigError

if TYPE_CHECKING:
    from costlens.observe.gpu_survey import GpuSurvey

__all__ = ["check_precision"]


def check_precision(config: Config, find: Callable[[], GpuSurvey]) -> Iterator[Answer]:
    """Yield what `auto` would choose here, and whether what is asked for can be done.

    Args:
        config: The settings.
        find: Asks the driver for the GPUs.
    """
    if find_spec("torch") is None:
        yield skipped("torch is not installed, which tells what the hardware can")
        return
    from costlens.protect.precision import Hardware, choose_precision, look_at_cpu

    seen = find()
    if seen.selection.devices and seen.capability is None:
        yield skipped("the driver does not tell what the GPU can compute in")
        return
    hardware = Hardware("cuda", seen.capability) if seen.selection.devices else look_at_cpu()
    best = choose_precision("auto", hardware)
    try:
        choice = choose_precision(config.precision, hardware)
    except ConfigError as error:
        yield problem(str(error), "set COSTLENS_PRECISION=auto", {"auto": best.effective})
        return
    facts = {"requested": choice.requested, "auto": best.effective}
    if choice.requested == "off":
        yield ok(
            f"the training's own choice stays; COSTLENS_PRECISION=auto would take {best.effective}:"
            f" {best.reason}",
            facts,
        )
        return
    yield ok(f"{choice.effective}: {choice.reason}", facts)

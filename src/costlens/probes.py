"""Which probes a run has; ``lookout.py`` drives them on the pipeline thread."""

from __future__ import annotations

from collections.abc import Callable

from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.probe import Probe
from costlens.observe.dataset import DatasetProbe
from costlens.observe.flops import FlopsProbe
from costlens.observe.host_probe import HostProbe, HostSources
from costlens.observe.loading import LoadingProbe
from costlens.observe.looks import Looks
from costlens.observe.nvml import NvmlProbe
from costlens.observe.pricing import PriceProbe
from costlens.observe.torch_facts import TorchProbe
from costlens.storage.run_folder import RunFolder

__all__ = ["make_probes"]


def make_probes(
    config: Config,
    state: AttemptState,
    sources: HostSources,
    looks: Looks,
    find_folder: Callable[[], RunFolder | None],
) -> list[Probe]:
    """Return the probes that the settings ask for, unopened; calling thread, imports nothing heavy.

    Args:
        config: The settings of the run.
        state: The attempt; its rank says which devices and whose host are read.
        sources: What the run tells about its loader workers and its reads.
        looks: What is seen of the training thread.
        find_folder: Returns the run's folder, None while it is not settled.
    """
    # The devices come first: what they are called decides on their price.
    return [
        NvmlProbe(state),
        PriceProbe(config, state),
        FlopsProbe(config, state),
        HostProbe(state, sources),
        LoadingProbe(sources.loader, looks),
        TorchProbe(state, lambda: looks.has_started, sources.all_reduce),
        DatasetProbe(config, state, find_folder),
    ]

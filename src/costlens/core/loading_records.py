"""What a rank's record says of the loader it trains from, and of where its thread was seen.

``observe/loading.py`` and ``observe/looks.py`` fill it; the rules in ``diagnose/`` read it. As in
``core/records.py`` absent means unknown, never zero; sums count from the start of the attempt.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from costlens.core.part import Part, Seconds, Tally

__all__ = ["MAX_HOOK", "MAX_HOOKS", "LoadingPart", "LooksPart"]

MAX_HOOKS = 8
"""Most hooks that looks are told of by name."""

MAX_HOOK = 100
"""Most characters of such a name."""

Hook = Annotated[str, Field(max_length=MAX_HOOK)]


class LoadingPart(Part):
    """The loader that the rank trains from, as its DataLoader was set up."""

    num_workers: Tally | None = None
    prefetch_factor: Tally | None = Field(None, description="Batches that each worker keeps ready.")
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    batch_size: Tally | None = Field(None, description="Samples a batch; absent where it varies.")
    num_passes: Tally = Field(0, description="Passes over the loader that were begun.")
    first_wait_s: Seconds = Field(
        0.0,
        description="Exposed waits for the first batches of all passes but the first, the start of "
        "their workers included; a part of data_wait.",
    )
    collate_s: Seconds | None = Field(
        None,
        description="Time in its collate_fn, over all workers; absent where nobody times it.",
    )


class LooksPart(Part):
    """Where the training thread was seen, about five times a second: counts, no lines of code."""

    num_waiting: Tally = Field(0, description="Looks that found it waiting for a batch, of these:")
    in_dataset: Tally = Field(
        0, description="In code of the data set, or of whoever makes batches."
    )
    in_collate: Tally = Field(0, description="In the loader's collate_fn.")
    in_read: Tally = Field(0, description="In a read or an open of a file system of fsspec's kind.")
    in_queue: Tally = Field(0, description="Waiting for what a worker makes.")
    num_iterating: Tally = Field(
        0, description="Looks that found it in another phase of an iteration, of these:"
    )
    in_sync: Tally = Field(
        0, description="In a call that waits for a device's result, such as Tensor.item()."
    )
    in_callbacks: Tally = Field(0, description="In a hook of a callback or of the module.")
    hooks: dict[Hook, Tally] = Field(
        default_factory=dict,
        max_length=MAX_HOOKS,
        description="The latter by class and hook, such as SaveImages.on_train_batch_end: the "
        "eight seen most, each since it is one of them; a hook that nobody names is in none.",
    )

"""What torch tells of itself in a rank's record: allocator of device memory, compiler, all-reduce.

``observe/torch_facts.py`` fills it. Absent means unknown, never zero.
"""

from __future__ import annotations

from pydantic import Field

from costlens.core.part import Part, Seconds, Tally

__all__ = ["AllReducePart", "AllocatorPart", "CompilerPart"]


class AllocatorPart(Part):
    """torch's caching allocator on the device this rank trains on; sums since CUDA began."""

    allocated_bytes: Tally = Field(0, description="In tensors.")
    reserved_bytes: Tally = Field(0, description="Taken from the driver.")
    peak_allocated_bytes: Tally = 0
    inactive_split_bytes: Tally = Field(
        0, description="Free parts of blocks that are in use otherwise: what fragmentation keeps."
    )
    num_alloc_retries: Tally = Field(
        0, description="Allocations that emptied the cache first, which waits for the device."
    )
    num_ooms: Tally = Field(0, description="Allocations that failed for lack of memory.")


class CompilerPart(Part):
    """torch.compile in this process."""

    num_compilations: Tally = Field(0, description="Frames compiled, again or for the first time.")
    compile_s: Seconds = Field(0.0, description="Seconds spent on it.")
    num_startup: Tally = Field(0, description="Those of them until the first iteration had ended.")
    startup_s: Seconds = Field(0.0, description="Seconds spent on those.")


class AllReducePart(Part):
    """The all-reduce of gradients, as DistributedDataParallel times it in every hundredth pass."""

    num_sampled: Tally = Field(0, description="Passes that were timed, of these:")
    exposed_s: Seconds = Field(
        0.0,
        description="Seconds from the last gradient until all were reduced: what computing hides "
        "is not in it, waits for ranks that came later are.",
    )
    least_exposed_s: Seconds = Field(
        0.0, description="The least of them: the rank that came last waited for nobody."
    )

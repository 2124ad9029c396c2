"""The port between an export worker and a back-end: a batch in, an outcome in safe words out.

``otel_endpoint`` implements it over the SDK's exporters, ``otel_worker`` uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["BatchExporter", "ExportResult", "Outbox"]

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """How an export ended.

    Args:
        ok: Whether the back-end took the batch.
        error_type: One of few words, such as ``http_503``; never text of a server or a user.
        is_retryable: Whether the same batch may succeed later.
        hint: What the user can do about it, in our words.
    """

    ok: bool
    error_type: str = ""
    is_retryable: bool = False
    hint: str | None = None


class BatchExporter(Protocol[BatchT_contra]):
    """A back-end for one signal."""

    def export(self, batch: BatchT_contra) -> ExportResult:
        """Send one batch and return how it ended; blocks, worker thread only."""
        ...

    def shutdown(self) -> None:
        """Release everything and make a running ``export`` return soon; any thread."""
        ...


class Outbox(Protocol):
    """Takes ready batches of any signal; ``ExportWorkers`` is one."""

    def submit(self, signal: str, batch: object, num_items: int) -> bool:
        """Return whether the batch was taken; never blocks."""

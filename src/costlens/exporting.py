"""The exporters of a run: opened with it, given every window, and ended within one deadline.

``assembly.py`` drives them on the pipeline thread; a fault of one leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from costlens.attempt import Parts
from costlens.claiming import Claim
from costlens.config import Config
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.log import RunContext
from costlens.core.snapshot import Exporter, Snapshot
from costlens.export.health import ExportersHealth, gather_health
from costlens.export.otel_setup import Telemetry
from costlens.export.record import RecordExporter
from costlens.export.trouble_log import tell_trouble

__all__ = ["Exports"]


class Exports:
    """The record, and what the settings ask for beside it.

    Args:
        config: The settings.
        parts: What the training thread writes.
        clock: Monotonic nanoseconds.
        claim: Tells the identity and the folder once they are settled.
        context: The log of the run.
        given: Replaces the exporters that the settings ask for.
    """

    def __init__(
        self,
        config: Config,
        parts: Parts,
        clock: Clock,
        claim: Claim,
        context: RunContext,
        given: Sequence[Exporter] | None,
    ) -> None:
        self._config = config
        self._parts = parts
        self._clock = clock
        self._claim = claim
        self._context = context
        self._given = given
        self._exporters: list[Exporter] = []
        self._record = RecordExporter(claim.find_folder, clock, context.log)
        self._telemetry: Telemetry | None = None

    def open(self) -> None:
        """Build the exporters; calling thread, once the log of the run is open.

        What is wrong with the settings is said of this run.
        """
        self._exporters = self._make() if self._given is None else list(self._given)

    def _make(self) -> list[Exporter]:
        if self._telemetry is None:
            self._telemetry = Telemetry(
                self._config,
                self._clock,
                self._parts.state,
                lambda: self._claim.identity,
                self._context,
            )
        return [self._record, *self._telemetry.open()]

    def prepare(self, snapshot: Snapshot) -> None:
        """Encode once; calling thread, see :meth:`RecordExporter.prepare`."""
        self._record.prepare(snapshot)

    def start(self, snapshot: Snapshot) -> None:
        """Tell of the attempt before its first window, and again once its identity is settled."""
        for exporter in self._exporters:
            faults.call(f"export.{exporter.name}.start", exporter.start, snapshot)

    def export(self, snapshot: Snapshot) -> None:
        """Hand a closed window to the exporters and the log."""
        # The record goes first: a line of the log may wait for whoever reads standard error, and
        # this may be the last thing that the process does.
        _export(self._exporters[:1], snapshot)
        tell_trouble(snapshot, self._context.log)
        _export(self._exporters[1:], snapshot)

    def finish(self) -> None:
        """Flush what can be flushed within ``flush_timeout_s``, all together."""
        deadline_ns = self._clock() + int(self._config.flush_timeout_s * NS_PER_S)
        for exporter in self._exporters:
            faults.call(f"export.{exporter.name}.finish", exporter.finish, deadline_ns)

    def amend(self, snapshot: Snapshot) -> None:
        """Write the last record again."""
        if self._record in self._exporters:
            self._record.amend(snapshot)

    def gather_health(self) -> ExportersHealth:
        """Return how the exporters fare."""
        return gather_health(self._exporters)

    def silence(self) -> None:
        """Forget the exporters: their threads did not survive the fork."""
        self._exporters = []


def _export(exporters: Sequence[Exporter], snapshot: Snapshot) -> None:
    for exporter in exporters:
        faults.call(f"export.{exporter.name}", exporter.export, snapshot)

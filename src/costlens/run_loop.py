"""What a plain loop calls on a run: iterations, phases, loaders, hooks, precision, checkpoints.

The base of ``run.py``'s :class:`~costlens.run.Run`, which opens and closes what is used here. All
of it runs on the training thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from costlens.assembly import Session
from costlens.attempt import Parts
from costlens.config import Config, resolve_config
from costlens.core.clock import Clock
from costlens.core.guard import faults
from costlens.core.phases import NAMES, Phase
from costlens.core.precision_records import PrecisionPart
from costlens.core.scopes import INERT_SCOPE, InertScope, IterationScope, PhaseScope
from costlens.core.snapshot import Snapshot
from costlens.errors import ConfigError, RunStateError
from costlens.observe.loader import WatchedLoader, watch_batches
from costlens.observe.plain_loop import PlainLoop
from costlens.protect.checkpoints import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from costlens.core.records import RankRecord
    from costlens.protect.manager import CheckpointManager
    from costlens.protect.plain_precision import PlainPrecision
    from costlens.protect.state_port import StatePort
    from costlens.storage.read_counts import ReadCounts

__all__ = ["RunLoop"]

T = TypeVar("T")


class RunLoop:
    """The part of a run that a plain loop talks to; see :class:`costlens.run.Run`."""

    config: Config
    clock: Clock
    is_active: bool
    _is_off: bool
    _parts: Parts | None
    _session: Session | None
    _watches: list[Any]
    _checkpoints: list[Checkpoints]
    _iteration: IterationScope | None
    _precision: PlainPrecision | None
    _checkpoint_config: Config | None
    _read_counts: ReadCounts | None

    @property
    def parts(self) -> Parts:
        """Return the living parts, for doorways.

        Raises:
            ConfigError: If the run has never been opened.
        """
        if self._parts is None:
            raise ConfigError(
                "this run has not been opened; call costlens.start() or run.open() first"
            )
        return self._parts

    @property
    def snapshot(self) -> Snapshot | None:
        """Return the state at the last close of a window, None before the first look."""
        return None if self._session is None else self._session.snapshot

    def iteration(
        self,
        *,
        tokens: object = None,
        slots: object = None,
        samples: object = None,
        loss_tokens: object = None,
        micro_batches: int = 1,
    ) -> IterationScope | InertScope:
        """Return a context manager around one pass of the loop; training thread, about 4 µs.

        Counts may be integers or zero-dimensional tensors; a tensor on a device is added up there
        and read later, never waited for.

        Args:
            tokens: Non-padding tokens of the batch.
            slots: Token positions of the batch, padding included.
            samples: Samples of the batch.
            loss_tokens: Tokens that the loss is computed on.
            micro_batches: Forward and backward passes that this pass of the loop makes, >= 1.
        """
        if not self.is_active or self._iteration is None:
            return INERT_SCOPE
        return self._iteration.prepare(samples, slots, tokens, loss_tokens, micro_batches)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Return a context manager that books the time of its block to a phase.

        Args:
            name: One of the phases, such as ``validation``, ``checkpoint``, ``transfer`` or
                ``restore``.

        Raises:
            ConfigError: If there is no such phase.
        """
        if name not in NAMES:
            raise ConfigError(f"there is no phase {name!r}; the phases are {', '.join(NAMES)}")
        if not self.is_active or self._parts is None:
            return INERT_SCOPE
        self._parts.state.count_phase(name)
        return PhaseScope(self._parts.timeline, Phase[name.upper()])

    def log(self, /, **metrics: Any) -> None:
        """Take quality metrics: host numbers, or zero-dimensional tensors that are read later.

        Args:
            **metrics: Values by name, such as ``loss``, ``val_loss``, ``grad_norm``,
            ``learning_rate``; at most 16 names a run.
        """
        if not self.is_active or self._parts is None:
            return
        number = max(0, self._parts.recorder.counters.iterations - 1)
        for name, value in metrics.items():
            self._parts.values.add_metric(name, value, number)

    def watch(
        self, model: object, *others: object, loader: object = None, scaler: object = None
    ) -> None:
        """Time a model's forward and backward, count optimizer steps and see waits, from hooks.

        Without ``run.iteration`` an iteration ends at the next fetch. Watching an object again does
        nothing; the run takes all hooks off when it finishes. No number of the training changes.

        Args:
            model: The ``torch.nn.Module`` that the loop calls.
            *others: ``torch.optim.Optimizer`` objects whose steps count, and the DataLoaders that
                the loop iterates as they are (not needed beside ``batches``).
            loader: Such a DataLoader, by name.
            scaler: A ``GradScaler``, so that the steps it skips are counted.

        Raises:
            ConfigError: If one of them is of a kind that has no hooks.
        """
        from costlens.observe.loader import is_data_loader, watch_loader
        from costlens.observe.torch_hooks import watch_objects

        loop = self._plain_loop()
        if loop is None:
            return
        loaders = [other for other in others if is_data_loader(other)]
        watch_objects(loop, model, tuple(x for x in others if not is_data_loader(x)), scaler)
        if self._parts is not None:
            self._parts.host.all_reduce.see(model)
        for watched in loaders if loader is None else [*loaders, loader]:
            watch_loader(loop, watched)

    def batches(self, loader: Iterable[T], *, device: object = None) -> WatchedLoader[T]:
        """Return the loader, watched: each fetch is a data wait; everything else is the loader's.

        It can be iterated again and again and has the loader's length and attributes.

        Args:
            loader: Any iterable of batches.
            device: Where to move each batch, as ``torch.device`` takes it; timed as transfer. None
                leaves batches where they are.

        Raises:
            ConfigError: If the loader cannot be iterated.
        """
        return watch_batches(self._plain_loop, loader, device)

    def filesystem(self, target: Any, **options: Any) -> Any:  # noqa: ANN401 - fsspec has no types
        """Return an fsspec file system whose reads this run counts: bytes, number, time, errors.

        For the data set to read with; it pickles into loader workers, whose reads count as well,
        and may be asked for before the run opens. A read takes about 1.5 µs longer. Where the run
        is off it is the plain file system.

        Args:
            target: A path, an fsspec URL such as ``s3://bucket/data``, or an fsspec file system.
            **options: What fsspec needs to open a URL, such as ``anon=True``.

        Raises:
            ConfigError: If the target is none of these.
        """
        from costlens.storage.counted_filesystem import count_reads, open_filesystem
        from costlens.storage.read_counts import ReadCounts

        filesystem = open_filesystem(target, options)
        if self._is_off:
            return filesystem
        if self._read_counts is None:
            self._read_counts = ReadCounts()
            if self._parts is not None:
                self._parts.host.read_counts = self._read_counts.read
        return count_reads(filesystem, self._read_counts)

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context manager for a forward pass, in what ``COSTLENS_PRECISION`` asks for.

        To be used with ``scaler``, after ``watch``; takes 1 µs more than torch's own. Does nothing
        where the run is off or computes in fp32.

        Raises:
            ConfigError: If a format is demanded that the hardware would only emulate.
        """
        return self._settle_precision().autocast()

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """Return the loss scaler of the run; the steps it skips count where ``watch`` sees others.

        It scales in fp16 and passes everything through elsewhere, so that one loop serves all;
        about 1 µs.

        Raises:
            ConfigError: As :meth:`autocast`.
        """
        scaler = self._settle_precision().scaler
        loop = self._plain_loop()
        if loop is not None and loop.own_scaler is not scaler and scaler.is_enabled():
            from costlens.observe.optimizer_watch import watch_scaler

            loop.own_scaler = scaler
            faults.call("run.scaler", watch_scaler, loop, scaler)
        return scaler

    def _settle_precision(self) -> PlainPrecision:
        if self._precision is None:
            from costlens.protect.plain_precision import PlainPrecision

            requested = "off" if self._is_off else self.config.precision
            self._precision = PlainPrecision(
                requested, self._find_model, self._tell_precision, self.recall_precision()
            )
        return self._precision

    def _find_model(self) -> Any:  # noqa: ANN401 - torch is not known here
        models = self._watches[0].models if self._watches else ()
        return next((watch.target() for watch in models), None)

    def _tell_precision(self, part: PrecisionPart) -> None:
        if self._parts is not None:
            self._parts.state.chosen_precision = part

    def checkpoints(self, url: str | None = None, **state: Any) -> Checkpoints:
        """Return what saves and resumes this training; once, with everything built.

        ``checkpoints.resume()`` before the loop and ``checkpoints.step()`` after each optimizer
        step are all it needs. Blocks on the store: a place that cannot be written is told now.

        Args:
            url: Where checkpoints go, any fsspec URL; ``COSTLENS_CHECKPOINT_URL`` by default. A
                place that is given here comes too late to name the run: a restart finds it only if
                a run id or a scheduler's job does. ``start(checkpoint_url=)`` needs neither.
            **state: What is saved: ``model=``, ``optimizer=``, ``scheduler=``, ``scaler=``,
                ``loader=`` (each one object, a list, or a mapping of names), and ``extra=``, a
                mapping of anything else with a state. See
                :class:`costlens.protect.state.TrainingState`.

        Raises:
            CheckpointError: If one of them has no state.
            ConfigError: If no place is known, or this job cannot be saved.
            RunStateError: If the run has its checkpoints already.
            StorageError: If the place cannot be written.
        """
        from costlens.checkpointing import open_checkpoints, warn_of_untied
        from costlens.leaving import listen_for_notices

        if not self.is_active or self._session is None:
            return Checkpoints(None, self.config.resume)
        if self._checkpoints:
            raise RunStateError(
                "this run has its checkpoints already, and its ranks save as one: call"
                " run.checkpoints once, with all that is to be saved (lists, or mappings of names,"
                " where there are several models), or run.finish() before the next training"
            )
        config = self.config if url is None else resolve_config(self.config, checkpoint_url=url)
        self._checkpoint_config = config
        identity = self._session.require_identity()
        if self.config.checkpoint_url is None:
            warn_of_untied(self.parts.state, self.config)
        made = open_checkpoints(config, self.parts, self.clock, identity, self._look, state)
        self._checkpoints.append(made)
        listen_for_notices(config, self.parts, self.clock, self._session.end, made)
        if self.parts.state.rank.world_size == 1:
            self.parts.boundaries.pause = made.pause
        return made

    def keep_state(self, source: StatePort) -> CheckpointManager | None:
        """Return what saves and resumes a framework's training, for doorways; blocks on the store.

        The run waits for its last save at the end; None where the run is off.

        Raises:
            ConfigError: If no place is known, or this job cannot be saved.
            StorageError: If the place cannot be written.
        """
        from costlens.checkpointing import make_manager
        from costlens.leaving import listen_for_notices

        if not self.is_active or self._session is None:
            return None
        identity = self._session.require_identity()
        made = make_manager(self.config, self.parts, self.clock, identity, source, self._look)
        kept = Checkpoints(made, self.config.resume)
        self._checkpoints.append(kept)
        listen_for_notices(self.config, self.parts, self.clock, self._session.end, kept)
        return made

    def recall_precision(self) -> str:
        """Return what this run computed in when last saved, "" where it plays no part; for doors.

        Start-up; blocks on the store where ``COSTLENS_PRECISION=auto`` may go on from checkpoints.

        Raises:
            StorageError: If the run folder cannot be reached.
        """
        config = self._checkpoint_config or self.config
        if not self.is_active or self._session is None or config.precision != "auto":
            return ""
        if config.checkpoint_url is None or config.resume == "never":
            return ""
        from costlens.checkpoint_facts import recall_precision

        return recall_precision(config, self._session.require_identity())

    def _look(self) -> RankRecord | None:
        snapshot = self.snapshot
        return None if snapshot is None else snapshot.record

    def _plain_loop(self) -> PlainLoop | None:
        if not self.is_active or self._parts is None:
            return None
        if not self._watches:
            parts = self._parts
            self._watches.append(
                PlainLoop(self, parts.recorder, parts.values, parts.state, self._adopt_gpus)
            )
            self._watches[0].on_iterator = parts.see_iterator
            self._watches[0].around_iterator = parts.host.loader.around
            self._watches[0].join(parts.boundaries)
        loop: PlainLoop = self._watches[0]
        return loop

    def _adopt_gpus(self, num_gpus: int) -> None:
        # The run was opened before it knew the model.
        parts = self.parts
        parts.totals.has_device = True
        if parts.state.rank.num_gpus == 0:
            rank = parts.state.rank.model_copy(update={"device": "cuda", "num_gpus": num_gpus})
            parts.state.rank = rank

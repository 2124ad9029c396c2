"""The whole state of a Lightning training as one tree, and back into the Trainer.

What the Trainer itself saves comes from it and goes back through it; beside that lie the random
numbers of the process and the place in each loader, which Lightning does not keep. The door's
callback (``trainer_checkpoints.py``) says when the loop begins and ends what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from costlens.errors import CheckpointError
from costlens.protect.loader_position import Position, follow
from costlens.protect.manifest import MisfitError
from costlens.protect.packing import own_tensors
from costlens.protect.rng import capture_rng, restore_rng
from costlens.protect.setting import compare_settings, describe_setting
from costlens.protect.state_checks import check_model
from costlens.protect.state_port import Layout

__all__ = ["Trainer", "TrainerState"]

Trainer: TypeAlias = Any
"""A ``Trainer`` of ``lightning.pytorch`` or ``pytorch_lightning``, neither of which is loaded."""

_FORMAT = "lightning/1"
_MADE_ANEW = "loader: it is made anew before the next epoch, whose batches hold other samples"
_SKIPS_VALIDATION = "validation: one was to follow the save, and a resume goes on without it"


class TrainerState:
    """What a Trainer trains, gathered and restored; a ``StatePort``.

    Args:
        trainer: The Trainer, set up for a fit.

    Attributes:
        report: Takes a sentence on what turns out inexact after a restore; the manager's.
        skips_validation: Whether a validation is about to run that a resume would leave out.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.report: Callable[[str], object] = lambda _: None
        self.skips_validation = False
        self._trainer = trainer
        self._positions: dict[int, Position] = {}  # by the identity of their loader
        self._num_ahead = 0
        self._checkpoint: dict[str, Any] | None = None
        self._rng: dict[str, Any] | None = None  # until the loop has come to where it was saved
        self._places: list[Any] = []
        self._num_followed = 0
        self._loaders: object = None  # the set of them before the one that is being made
        self._has_begun_pass = False
        self._is_between = False  # two passes

    # Saving.

    def gather(self, step: int) -> dict[str, Any]:
        """Return the state as a tree; training thread, takes what the Trainer's own dump takes.

        Every rank calls it: a strategy may have to ask the others for its optimizer.

        Args:
            step: Optimizer steps done, >= 0.
        """
        positions = self._find_positions()
        return {
            "format": _FORMAT,
            "step": step,
            "inexact": self._inexact(positions),
            "setting": self._setting(),
            "trainer": self._dump(),
            # At the end of a pass nothing is ahead.
            "loader": [
                position.state(self._num_ahead if position.is_in_pass else 0)
                for position in positions
            ],
            "rng": capture_rng(),
        }

    def _dump(self) -> dict[str, Any]:
        trainer = self._trainer
        # The public way writes a file, and counts as a save that is safe.
        dump: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001
        # The place in a loader is kept beside it: Lightning's own copy is a batch ahead on streams.
        dump["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
        # They may hold anything, secrets too, and no resume reads them.
        for owner in (trainer.lightning_module, trainer.datamodule):
            for what in ("NAME", "KEY", "TYPE"):
                dump.pop(getattr(owner, f"CHECKPOINT_HYPER_PARAMS_{what}", ""), None)
        return dump

    def _inexact(self, positions: list[Position]) -> list[str]:
        found = [line for position in positions for line in position.inexact()]
        is_between = not any(position.is_in_pass for position in positions)
        if is_between and self._trainer.reload_dataloaders_every_n_epochs:
            found.append(_MADE_ANEW)
        if self.skips_validation:
            found.append(_SKIPS_VALIDATION)
        return found

    def _find_positions(self) -> list[Position]:
        # A Trainer may make its loaders anew every few epochs.
        loaders = self._trainer.fit_loop._combined_loader.flattened  # noqa: SLF001 - not public
        found = {id(loader): self._positions.get(id(loader)) for loader in loaders}
        self._positions = {key: each for key, each in found.items() if each is not None}
        return list(self._positions.values())

    # Restoring.

    def restore(self, tree: Any) -> list[str]:  # noqa: ANN401 - any tree
        """Keep a state until the Trainer asks for its parts; return what cannot be exact.

        Args:
            tree: From :meth:`gather`, in this process or another; its tensors are copied.

        Raises:
            CheckpointError: If it is not a Trainer's, or does not fit the module.
        """
        if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
            raise CheckpointError(
                "the checkpoint was not saved under a Lightning Trainer; resume it with what saved"
                " it, or start anew at another COSTLENS_CHECKPOINT_URL"
            )
        inexact = [*tree["inexact"], *compare_settings(tree["setting"], self._setting())]
        module, saved = self._trainer.lightning_module, tree["trainer"]
        if getattr(module, "strict_loading", True):
            inexact += check_model(type(module).__name__, module, saved["state_dict"])
        # A module copies its weights; others keep what they are given.
        self._checkpoint = {
            key: value if key == "state_dict" else own_tensors(value)
            for key, value in saved.items()
        }
        self._rng, self._places = own_tensors(tree["rng"]), own_tensors(tree["loader"])
        return list(dict.fromkeys(inexact))

    def take_checkpoint(self) -> dict[str, Any] | None:
        """Return what the Trainer itself restores, once; None for a fresh start."""
        taken, self._checkpoint = self._checkpoint, None
        return taken

    def layout(self) -> Layout:
        """Return nothing: a Trainer goes on with the ranks that it was saved with.

        Raises:
            MisfitError: Always. Its counts of batches are those of one number of ranks.
        """
        raise MisfitError(
            "a Trainer cannot go on from it: its place in an epoch counts the batches of one rank."
            " Start as many ranks as saved it, set COSTLENS_RESUME=never to begin anew, or"
            " name a checkpoint of Lightning's own with ckpt_path"
        )

    def renew(self, tree: Any) -> None:  # noqa: ANN401 - any tree
        """Do nothing: see :meth:`layout`."""

    # What the loop tells, in this order.

    @property
    def is_resuming(self) -> bool:
        """Return whether a restored training has yet to come to where it was saved."""
        return self._rng is not None

    def follow(self, loader: object) -> None:
        """Follow a loader that the Trainer is about to iterate, from its saved place if it has one.

        Args:
            loader: As the strategy has made it ready.
        """
        looks_ahead = not _has_length(loader)
        self._num_ahead = max(self._num_ahead, int(looks_ahead))
        position = follow(loader, self._tell, can_look_back=looks_ahead)
        self._positions[id(loader)] = position
        if self._rng is not None:
            self._restore_place(position, type(loader).__name__)

    def _restore_place(self, position: Position, kind: str) -> None:
        loaders = self._trainer.fit_loop._combined_loader  # noqa: SLF001 - not public
        if (
            loaders is not self._loaders
        ):  # made anew before the first epoch, once more from the first
            self._loaders, self._num_followed = loaders, 0
        number, self._num_followed = self._num_followed, self._num_followed + 1
        if number >= len(self._places):
            self._tell(f"loader ({kind}): the checkpoint has no place for it")
            return
        for sentence in position.restore(self._places[number], self._on_started):
            self._tell(sentence)
        self._is_between = not position.is_waiting
        if self._is_between:
            position.delay_pass(self._make_late)

    def _make_late(self) -> None:
        if self._num_ahead:
            self._set_rng()  # a batch is fetched ahead, before any hook; making this draws
        # All of them first, as a combined loader does, and then batches.
        for position in self._positions.values():
            position.make_late()

    def begin_epoch(self) -> None:
        """Go on with the random numbers of a save between two passes; hooks may draw from here."""
        if self._is_between and not self._num_ahead:
            self._set_rng()

    def begin_batch(self) -> None:
        """End a resume: the first batch is here, and the loop where it was saved."""
        # A batch that is held ahead was fetched long ago, and hooks have drawn since.
        if not self._has_begun_pass or (self._num_ahead and not self._is_between):
            self._set_rng()
        self._rng, self._places = None, []

    def end_epoch(self) -> None:
        """Note the end of a pass: a Trainer counts to the length and never sees it."""
        for position in self._positions.values():
            position.end_pass()

    def remove(self) -> None:
        """Give the loaders their own methods back."""
        for position in self._positions.values():
            position.remove()
        self._positions.clear()

    def _on_started(self) -> None:
        if not self._has_begun_pass:  # the first of several loaders; its fetch draws for the next
            self._set_rng()

    def _set_rng(self) -> None:
        if self._rng is not None:
            self._has_begun_pass = True
            for sentence in restore_rng(self._rng):
                self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        self.report(sentence)

    def _setting(self) -> dict[str, Any]:
        trainer = self._trainer
        return describe_setting(str(trainer.strategy.root_device.type), str(trainer.precision))


def _has_length(loader: Any) -> bool:  # noqa: ANN401 - anything that is iterated
    try:
        len(loader)
    except (TypeError, NotImplementedError):
        return False
    return True

"""A fit with a checkpoint URL saves itself, and a second one goes on by itself."""

from __future__ import annotations

import copy
import json
import pickle
import time
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from costlens.account.ledger import merge
from costlens.core.overrides import Override
from costlens.core.records import RankRecord
from costlens.errors import CheckpointError, ConfigError
from costlens.lightning import CostLensCallback
from costlens.protect.trainer_checkpoints import TrainerCheckpoints, attach
from tests.adapters.lightning import keeping
from tests.adapters.lightning.keeping import Due, assert_same_end, make_loader, make_module, train
from tests.log_events import capture_events


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> Due:
    """Return what makes saves due."""
    return Due(monkeypatch)


def test_resumes_without_a_path(each_pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """In both packages the URL alone makes a second fit go on where the first one was cut."""
    whole, *_ = train(each_pl, make_loader, None)
    due.step = 8
    train(each_pl, make_loader, tmp_path, cut_at=11)
    resumed, trainer, callback = train(each_pl, make_loader, tmp_path, seed=2)
    assert len(resumed.losses) == 15 - 8
    assert_same_end(resumed, whole)
    assert trainer.global_step == 15
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (part.resumed_step, part.last_step, part.inexact) == (8, 15, [])


def test_the_ledger_knows_what_was_done_again(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """C057: steps are counted on from the save; those after it are lost, and nothing else is."""
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=11)
    train(pl, make_loader, tmp_path)
    paths = tmp_path.glob("costlens-runs/*/record-*.json")
    records = [RankRecord.model_validate_json(path.read_bytes()) for path in paths]
    run = merge(records, now=time.time())
    progress = run.progress
    assert (progress.optimizer_steps, progress.productive_steps, progress.lost_steps) == (18, 15, 3)
    assert (run.checkpoints.resumed_step, run.checkpoints.last_step) == (8, 15)
    starts = sorted((each.attempt.start_step, each.attempt.end_step) for each in records)
    assert starts == [(0, 11), (8, 15)]


LIMITS = {"epochs": {"max_epochs": 3}, "steps": {"max_epochs": -1, "max_steps": 7}}
# Optimizer steps of five batches an epoch, without and with accumulation of two.
POINTS = {("mid", 1): 3, ("last", 1): 5, ("mid", 2): 4, ("last", 2): 3}


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("point", ["mid", "last"])
@pytest.mark.parametrize("loader", [(k, n) for k in ("plain", "stateful") for n in (0, 2)])
def test_every_bit_is_that_of_the_whole(
    pl: ModuleType,
    tmp_path: Path,
    loader: tuple[str, int],
    point: str,
    limit: str,
    accumulate: int,
    *,
    due: Due,
) -> None:
    """Wherever a save comes due, at the last batch of an epoch too, no loss and no bit moves."""
    make = partial(make_loader, *loader)
    options: dict[str, Any] = {**LIMITS[limit], "accumulate_grad_batches": accumulate}
    whole, *_ = train(pl, make, None, **options)
    step = due.step = POINTS[point, accumulate]
    cut_at = len(whole.losses) - 1
    train(pl, make, tmp_path, cut_at=cut_at, **options)
    resumed, _, callback = train(pl, make, tmp_path, seed=2, **options)
    assert_same_end(resumed, whole)
    assert (
        len(whole.losses) - len(resumed.losses)
        == {
            ("mid", 1): 3,
            ("last", 1): 5,
            ("mid", 2): 7,
            ("last", 2): 5,
        }[point, accumulate]
    )
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (part.resumed_step, part.inexact) == (step, [])


@pytest.mark.parametrize("kind", ["plain", "stateful"])
def test_goes_on_beyond_a_limit_in_the_middle_of_an_epoch(
    pl: ModuleType, tmp_path: Path, due: Due, kind: str
) -> None:
    """A fit that ended at ``max_steps`` is the beginning of one with more of them."""
    del due
    make = partial(make_loader, kind)
    options = {"max_epochs": -1, "max_steps": 12}
    whole, *_ = train(pl, make, None, **options)
    train(pl, make, tmp_path, **{**options, "max_steps": 7})
    resumed, *_ = train(pl, make, tmp_path, seed=2, **options)
    assert len(resumed.losses) == 5
    assert_same_end(resumed, whole)


def test_goes_on_beyond_its_epochs(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A fit that ended with its epochs is the beginning of one with more of them."""
    del due
    whole, *_ = train(pl, make_loader, None)
    train(pl, make_loader, tmp_path, max_epochs=2)
    resumed, *_ = train(pl, make_loader, tmp_path, seed=2)
    assert len(resumed.losses) == 5
    assert_same_end(resumed, whole)


def test_goes_on_after_a_wish_to_stop(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A fit that was asked to stop saves where it stops, once; the next one goes on from there."""
    del due

    class Stop(pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.should_stop = trainer.global_step >= 7

    whole, *_ = train(pl, make_loader, None)
    train(pl, make_loader, tmp_path / "a", callbacks=(Stop(),))
    resumed, *_ = train(pl, make_loader, tmp_path / "a", seed=2)
    assert len(resumed.losses) == 15 - 7
    assert_same_end(resumed, whole)
    _, trainer, callback = train(pl, make_loader, tmp_path / "b", callbacks=(Stop(),), min_steps=9)
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (trainer.global_step, part.last_step, part.num_saved) == (9, 9, 1)


def names_of(url: Path) -> list[str]:
    """Return the checkpoints at a place."""
    return sorted(path.stem for path in url.glob("*/manifests/*.json"))


def test_lightnings_own_checkpoints_stay(pl: ModuleType, tmp_path: Path) -> None:
    """With a URL and without, the default ModelCheckpoint is added, and none where it is off."""
    for name, url in (("without", None), ("with", tmp_path / "url")):
        options: dict[str, Any] = {"max_epochs": 1, "default_root_dir": tmp_path / name}
        _, trainer, _ = train(pl, make_loader, url, enable_checkpointing=True, **options)
        assert Path(trainer.checkpoint_callback.best_model_path).is_file()
        other = None if url is None else tmp_path / "other"
        _, trainer, _ = train(pl, make_loader, other, enable_checkpointing=False, **options)
        assert trainer.checkpoint_callback is None
    assert names_of(tmp_path / "url")
    assert names_of(tmp_path / "other")


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists:UserWarning")
def test_a_users_checkpoints_go_on_beside_ours(
    each_pl: ModuleType, tmp_path: Path, due: Due
) -> None:
    """A ModelCheckpoint saves and restores its own state; its files stay whole and loadable."""
    due.step = 8
    options = {"enable_checkpointing": True}

    def theirs() -> Any:
        return each_pl.callbacks.ModelCheckpoint(tmp_path / "theirs", save_last=True, save_top_k=-1)

    train(each_pl, make_loader, tmp_path, cut_at=11, callbacks=(theirs(),), **options)
    resumed, trainer, _ = train(each_pl, make_loader, tmp_path, callbacks=(theirs(),), **options)
    assert len(resumed.losses) == 7
    assert trainer.checkpoint_callback.last_model_path.endswith(".ckpt")
    # The end of the second epoch came twice: it was done again.
    steps = sorted(path.stem.partition("=")[2] for path in (tmp_path / "theirs").glob("e*.ckpt"))
    assert steps == ["0-step=5", "1-step=10", "1-step=10-v1", "2-step=15"]


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists:UserWarning")
def test_an_explicit_path_wins(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A fit with a ``ckpt_path`` begins there, whatever is kept at the URL."""
    due.step = 8
    theirs = pl.callbacks.ModelCheckpoint(tmp_path / "theirs", save_top_k=-1)
    options = {"callbacks": (theirs,), "enable_checkpointing": True}
    train(pl, make_loader, tmp_path, cut_at=11, **options)
    path = next((tmp_path / "theirs").glob("*step=5.ckpt"))
    resumed, _, callback = train(pl, make_loader, tmp_path, ckpt_path=path, **options)
    assert len(resumed.losses) == 10
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (part.resumed_step, callback.run.parts.state.start_step) == (None, 5)


@pytest.mark.filterwarnings("ignore:You requested to overfit:UserWarning")
@pytest.mark.parametrize("options", [{"fast_dev_run": 2}, {"overfit_batches": 2}])
def test_debug_runs_neither_save_nor_resume(
    pl: ModuleType, tmp_path: Path, due: Due, options: dict[str, Any]
) -> None:
    """C127: a debug run leaves the checkpoints of the real one alone."""
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=11)
    before = names_of(tmp_path)
    assert len(before) == 1
    debugged, trainer, _ = train(pl, make_loader, tmp_path, **options)
    assert trainer.global_step == len(debugged.losses)
    assert names_of(tmp_path) == before


def test_no_save_in_or_before_a_validation(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """C121: the sanity check saves nothing; a save due before a validation waits for its end."""
    options = {"validation": DataLoader(make_loader().dataset, 10), "val_check_interval": 2}
    whole, *_ = train(pl, make_loader, None, **options)
    due.step = 2
    _, _, callback = train(pl, make_loader, tmp_path, cut_at=5, **options)
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (part.last_step, part.num_saved) == (3, 1)
    resumed, *_ = train(pl, make_loader, tmp_path, seed=2, **options)
    assert_same_end(resumed, whole)
    num_sanity, num_before = 2, 1 + 2
    assert len(resumed.hooks) == len(whole.hooks) - num_before - (num_before - num_sanity)


def test_resume_never_and_must(
    pl: ModuleType, tmp_path: Path, due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COSTLENS_RESUME=must refuses a place without checkpoints, and never begins anew."""
    monkeypatch.setenv("COSTLENS_RESUME", "must")
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        train(pl, make_loader, tmp_path)
    monkeypatch.setenv("COSTLENS_RESUME", "auto")
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=11)
    monkeypatch.setenv("COSTLENS_RESUME", "never")
    anew, *_ = train(pl, make_loader, tmp_path)
    assert len(anew.losses) == 15


def test_a_checkpoint_that_does_not_fit_is_refused(
    pl: ModuleType, tmp_path: Path, due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model than the one that was saved is an error that names the first difference."""
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=11)
    other = torch.nn.Linear
    monkeypatch.setattr(torch.nn, "Linear", lambda i, o: other(i, o, bias=False))
    with pytest.raises(CheckpointError, match=r"layers\.0\.bias"):
        train(pl, make_loader, tmp_path)


def test_what_other_ranks_saved_is_refused(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A place in an epoch is counted in batches of one rank: the error says what to do instead."""
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=11)
    (path,) = tmp_path.glob("*/manifests/*.json")
    manifest = json.loads(path.read_text())
    manifest["world_size"] = 2
    manifest["shards"].append({**manifest["shards"][0], "rank": 1})
    path.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"saved by 2 ranks and this job has 1: .*ckpt_path"):
        train(pl, make_loader, tmp_path)


def test_only_the_first_trainer_is_kept(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A second Trainer with the same callback neither resumes from nor writes over the first."""
    del due
    _, first, callback = train(pl, make_loader, tmp_path, max_epochs=1)
    before = names_of(tmp_path)
    second = pl.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, callbacks=[callback], barebones=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with capture_events() as logs:
        second.fit(make_module(pl), make_loader())
    assert "costlens.checkpoint.unprotected" in [entry["event"] for entry in logs]
    assert (second.global_step, names_of(tmp_path)) == (10, before)
    first.fit_loop.max_epochs = 2
    first.fit(first.lightning_module, make_loader())
    assert len(names_of(tmp_path)) == 2


def test_nothing_stays_on_the_trainer(pl: ModuleType, tmp_path: Path) -> None:
    """After a fit the Trainer has its own methods and callbacks back, and can be copied."""
    _, trainer, callback = train(pl, make_loader, tmp_path, max_epochs=1)
    assert trainer.callbacks == [callback]
    for owner in (trainer.strategy, trainer._checkpoint_connector):
        assert not any(isinstance(each, Override) for each in vars(owner).values())
    assert copy.deepcopy(trainer).callbacks[0] is not callback


def test_a_trainer_is_copied_in_the_middle_of_a_fit(pl: ModuleType, tmp_path: Path) -> None:
    """A deep copy taken in a hook has nothing that saves; what it was made from goes on."""
    copies: list[Any] = []

    class Copier(pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            copies.append(pickle.loads(pickle.dumps(trainer.callbacks[-1])))
            copies.append(copy.deepcopy(trainer.callbacks[-1]))

    train(pl, make_loader, tmp_path, max_epochs=1, callbacks=(Copier(),))
    assert all(isinstance(each, pl.Callback) for each in copies)
    assert not any(isinstance(each, TrainerCheckpoints) for each in copies)
    assert len(names_of(tmp_path)) == 1


def test_hyperparameters_are_not_kept(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """What a module was made with may be a secret, or of a kind that no checkpoint may hold."""
    del due

    class Secret(type(make_module(pl))):  # type: ignore[misc]
        def __init__(self, key: str, path: Path) -> None:
            super().__init__()
            self.save_hyperparameters()

    module = Secret("hunter2", tmp_path)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[CostLensCallback(checkpoint_url=str(tmp_path / "kept"))],
    )  # fmt: skip
    trainer.fit(module, make_loader())
    (skeleton,) = (tmp_path / "kept").glob("*/data/*/*skeleton")
    assert b"hunter2" not in skeleton.read_bytes()


def test_sharded_strategies_are_refused(pl: ModuleType) -> None:
    """A strategy that writes its own state is refused, with what to use instead."""

    class FSDPStrategy:
        pass

    trainer = SimpleNamespace(strategy=FSDPStrategy())
    with pytest.raises(ConfigError, match=r"FSDPStrategy.*ModelCheckpoint"):
        attach(trainer, (pl.Callback,), lambda _: None, 1.0)


def test_a_tuner_before_the_fit_does_no_harm(
    pl: ModuleType, tmp_path: Path, due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search for a learning rate restores a state of its own, and then the fit its own."""
    monkeypatch.chdir(tmp_path)

    def build(pl: ModuleType, cut_at: int | None) -> Any:
        module = make_module(pl, cut_at)

        class Tuned(type(module)):  # type: ignore[misc]
            def configure_optimizers(self) -> Any:
                return torch.optim.AdamW(self.parameters(), lr=self.lr)

        module.__class__, module.lr = Tuned, 0.01
        return module

    def finder() -> Any:
        return pl.callbacks.LearningRateFinder(num_training_steps=4, update_attr=False)

    options: dict[str, Any] = {"build": build}
    whole, *_ = train(pl, make_loader, None, callbacks=(finder(),), **options)
    due.step = 8
    train(pl, make_loader, tmp_path, cut_at=4 + 11, callbacks=(finder(),), **options)
    resumed, trainer, _ = train(pl, make_loader, tmp_path, seed=2, callbacks=(finder(),), **options)
    assert trainer.global_step == 15
    assert resumed.losses[4:] == whole.losses[4 + 8 :]


def test_an_attached_callback_saves_and_resumes_as_well(
    pl: ModuleType, tmp_path: Path, due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two variables are enough for a script that has never heard of costlens."""
    monkeypatch.setenv("COSTLENS_AUTOATTACH", "1")
    monkeypatch.setenv("COSTLENS_CHECKPOINT_URL", str(tmp_path))
    monkeypatch.setattr(keeping, "CostLensCallback", lambda **_: pl.Callback())
    due.step = 8
    train(pl, make_loader, None, cut_at=11)
    resumed, *_ = train(pl, make_loader, None, seed=2)
    assert len(resumed.losses) == 7


def test_what_cannot_be_exact_is_named(pl: ModuleType, tmp_path: Path, due: Due) -> None:
    """A validation after every batch that a resume leaves out; a stream that cannot tell its place.

    The stream begins its pass again: the fit does more batches than it would have.
    """

    class Stream(IterableDataset[tuple[torch.Tensor]]):
        def __iter__(self) -> Any:
            return iter(make_loader().dataset)

    options: dict[str, Any] = {"validation": DataLoader(make_loader().dataset, 10)}
    due.step = 8
    train(pl, make_loader, tmp_path / "a", cut_at=11, val_check_interval=1, **options)
    _, _, callback = train(pl, make_loader, tmp_path / "a", val_check_interval=1, **options)
    part = callback.run.parts.state.checkpoints
    assert part is not None
    (sentence,) = part.inexact
    assert sentence.startswith("validation: one was to follow the save")
    due.step = 8
    train(pl, lambda: DataLoader(Stream(), 4), tmp_path / "b", cut_at=11)
    resumed, _, callback = train(pl, lambda: DataLoader(Stream(), 4), tmp_path / "b")
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert part.resumed_step == 8
    assert any("begins again" in sentence for sentence in part.inexact)
    assert len(resumed.losses) == 5 + 5

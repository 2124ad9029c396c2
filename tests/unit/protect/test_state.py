"""The training state: everything comes back, nothing changes if something does not fit."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from costlens.errors import CheckpointError
from costlens.protect.snapshot import HostBuffer, load_tree
from costlens.protect.state import TrainingState


def through_bytes(tree: Any) -> Any:
    """Return the tree as a checkpoint gives it back: views of one buffer."""
    snapshot = HostBuffer().take(tree)
    return load_tree(snapshot.skeleton, snapshot.buffer.clone())


def make_model(width: int = 4) -> nn.Module:
    """Return a small model with parameters, buffers and a counter."""
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def train(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    """Make one step."""
    model(torch.randn(5, 3)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step(lambda: torch.ones(()))
        optimizer.zero_grad()


def bits(tree: Any) -> bytes:
    """Return a state as bytes, to compare."""
    target = io.BytesIO()
    torch.save(tree, target)
    return target.getvalue()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Adafactor": torch.optim.Adafactor,
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "Rprop": torch.optim.Rprop,
    "ASGD": torch.optim.ASGD,
    "LBFGS": lambda p: torch.optim.LBFGS(p, max_iter=2),
    "RAdam": torch.optim.RAdam,
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "ReduceLROnPlateau": lr_scheduler.ReduceLROnPlateau,
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_on(name: str) -> None:
    """C058: the state of every kind of optimizer loads by ``weights_only`` and steps on alike."""
    outcomes = []
    for is_resumed in (False, True):
        torch.manual_seed(0)
        model = make_model()
        optimizer = OPTIMIZERS[name](model.parameters())
        state = TrainingState(model=model, optimizer=optimizer)
        for _ in range(3):
            train(model, optimizer)
        if is_resumed:
            tree = through_bytes(state.gather(3))
            model = make_model()
            optimizer = OPTIMIZERS[name](model.parameters())
            TrainingState(model=model, optimizer=optimizer).restore(tree)
        train(model, optimizer)
        outcomes.append(bits([model.state_dict(), optimizer.state_dict()]))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_go_on(name: str) -> None:
    """C058: the state of every kind of scheduler loads by ``weights_only`` and goes on alike."""

    def make() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD(make_model().parameters(), 0.1)
        return optimizer, SCHEDULERS[name](optimizer)

    def step(optimizer: Any, scheduler: Any) -> None:
        optimizer.step()
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))

    optimizer, scheduler = make()
    for _ in range(3):
        step(optimizer, scheduler)
    saved = TrainingState(model=make_model(), optimizer=optimizer, scheduler=scheduler)
    tree = through_bytes(saved.gather(3))
    other, follower = make()
    TrainingState(model=make_model(), optimizer=other, scheduler=follower).restore(tree)
    for _ in range(4):
        step(optimizer, scheduler)
        step(other, follower)
        assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_extra_parts_and_counters_go_on() -> None:
    """Averaged weights, generators, dicts of plain values and the run's counts are part of it."""

    def make() -> tuple[dict[str, Any], TrainingState]:
        model = make_model()
        extra = {
            "average": torch.optim.swa_utils.AveragedModel(model),
            "noise": np.random.default_rng(1),
            "masks": torch.Generator().manual_seed(1),
            "mixing": random.Random(1),
            "best": {"loss": 3.5, "history": [1, 2]},
        }
        return extra, TrainingState(
            model=model, extra=extra, counters=lambda: {"optimizer_steps": 12, "samples": 99}
        )

    def draw(extra: dict[str, Any]) -> list[Any]:
        return [
            extra["noise"].random(),
            torch.rand(1, generator=extra["masks"]).item(),
            extra["mixing"].random(),
        ]

    extra, state = make()
    draw(extra)
    extra["best"]["loss"] = 1.25
    extra["average"].update_parameters(make_model())
    tree = through_bytes(state.gather(12))
    other, resumed = make()
    best = other["best"]
    resumed.restore(tree)
    assert (resumed.step, resumed.counters) == (12, {"optimizer_steps": 12, "samples": 99})
    assert best == {"loss": 1.25, "history": [1, 2]}
    assert bits(other["average"].state_dict()) == bits(extra["average"].state_dict())
    assert draw(other) == draw(extra)


def test_several_models_and_optimizers_by_name() -> None:
    """Two models with two optimizers come back each to its own, whatever the order given."""

    def make(names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        models = {name: nn.Linear(2, 2) for name in names}
        return models, {n: torch.optim.Adam(m.parameters()) for n, m in models.items()}

    models, optimizers = make(["generator", "critic"])
    tree = through_bytes(TrainingState(model=models, optimizer=optimizers).gather(1))
    others, resumed = make(["critic", "generator"])
    TrainingState(model=others, optimizer=resumed).restore(tree)
    for name in models:
        assert torch.equal(models[name].weight, others[name].weight)
    assert not torch.equal(others["critic"].weight, others["generator"].weight)


def test_gathering_copies_nothing() -> None:
    """The tree refers to the tensors that train; the snapshot copies them, and no one else."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    parts = TrainingState(model=model, optimizer=optimizer).gather(1)["parts"]
    first = next(model.parameters())
    assert parts["model"]["0"]["0.weight"].data_ptr() == first.data_ptr()
    saved = parts["optimizer"]["0"]["state"][0]["exp_avg"]
    assert saved.data_ptr() == optimizer.state[first]["exp_avg"].data_ptr()


def test_nothing_restored_lives_in_the_checkpoint() -> None:
    """Overwriting the checkpoint's memory after a restore changes neither model nor optimizer."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    snapshot = HostBuffer().take(TrainingState(model=model, optimizer=optimizer).gather(1))
    buffer = snapshot.buffer.clone()
    other = make_model()
    follower = torch.optim.Adam(other.parameters())
    TrainingState(model=other, optimizer=follower).restore(load_tree(snapshot.skeleton, buffer))
    buffer.zero_()
    assert bits(follower.state_dict()) == bits(optimizer.state_dict())
    assert bits(other.state_dict()) == bits(model.state_dict())


def test_model_inside_ddp_or_compile_is_the_one_saved(tmp_path: Any) -> None:
    """A state saved from a wrapped model restores into the plain one, and the other way round."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        wrapped = torch.compile(nn.parallel.DistributedDataParallel(make_model()), backend="eager")
        plain = make_model()
        TrainingState(model=plain).restore(through_bytes(TrainingState(model=wrapped).gather(0)))
        assert torch.equal(plain[0].weight, wrapped._orig_mod.module[0].weight)
        TrainingState(model=wrapped).restore(through_bytes(TrainingState(model=plain).gather(0)))
    finally:
        torch.distributed.destroy_process_group()


def _rename(tree: Any) -> None:
    parts = tree["parts"]["model"]["0"]
    parts["renamed"] = parts.pop("0.weight")


def _reshape(tree: Any) -> None:
    tree["parts"]["model"]["0"]["2.bias"] = torch.zeros(2)


def _regroup(tree: Any) -> None:
    tree["parts"]["optimizer"]["0"]["param_groups"][0]["params"].pop()


def _swap(tree: Any) -> None:
    state = tree["parts"]["optimizer"]["0"]["state"]
    state[0], state[1] = state[1], state[0]


def _rekind(tree: Any) -> None:
    tree["kinds"]["scheduler"]["0"] = "OneCycleLR"


def _drop_format(tree: Any) -> None:
    tree["format"] = 99


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_rename, r"model '0': '0\.weight' is what the model has and the checkpoint not"),
        (_reshape, r"model '0': '2\.bias' is \(1,\) and \(2,\) in the checkpoint"),
        (_regroup, r"optimizer '0' has groups of \[6\] parameters and the checkpoint of \[5\]"),
        (_swap, r"optimizer '0': 'exp_avg' of '0\.weight' is \(4,\) in the checkpoint"),
        (_rekind, r"scheduler '0' is a StepLR and the checkpoint has the state of a OneCycleLR"),
        (_drop_format, "no training state of this version"),
    ],
)
def test_misfit_raises_before_anything_changes(spoil: Callable[[Any], None], told: str) -> None:
    """A state that does not fit names the key, and model, optimizer and random numbers stay."""

    def make() -> tuple[Any, Any, TrainingState]:
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        scheduler = lr_scheduler.StepLR(optimizer, 2)
        return (
            model,
            optimizer,
            TrainingState(model=model, optimizer=optimizer, scheduler=scheduler),
        )

    tree = through_bytes(make()[2].gather(1))
    spoil(tree)
    model, optimizer, state = make()
    before = bits([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()])
    with pytest.raises(CheckpointError, match=told):
        state.restore(tree)
    assert bits([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()]) == before
    assert state.step is None


def test_what_has_no_state_is_refused() -> None:
    """A part that cannot be saved is an error that names it, when it is given."""
    with pytest.raises(CheckpointError, match="scheduler '0' is a int, which has no state_dict"):
        TrainingState(model=make_model(), scheduler=3)
    with pytest.raises(CheckpointError, match="extra 'best' is a float; allowed are"):
        TrainingState(model=make_model(), extra={"best": 1.0})


def test_scaler_goes_on_and_a_change_is_named() -> None:
    """The loss scale comes back; a scaler that was off, or is, starts anew and is named."""

    def gather(scaler: Any) -> Any:
        return through_bytes(TrainingState(model=make_model(), scaler=scaler).gather(1))

    def restore(scaler: Any, tree: Any) -> list[str]:
        return TrainingState(model=make_model(), scaler=scaler).restore(tree)

    grown, fresh = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu")
    grown.scale(torch.ones(()))
    grown.update(12.0)
    off = torch.amp.GradScaler("cpu", enabled=False)
    tree = gather(grown)
    assert not [line for line in restore(fresh, tree) if "scaler" in line]
    assert fresh.get_scale() == 12.0
    text = "at the save and {} now, so the loss scale is lost"
    assert f"scaler '0': on {text.format('off')}" in restore(off, tree)
    assert f"scaler '0': off {text.format('on')}" in restore(fresh, gather(off))
    assert fresh.get_scale() == 12.0


def test_what_is_missing_or_other_is_named() -> None:
    """Parts without a counterpart, another precision, torch, device or world size are named."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tree = TrainingState(model=model, optimizer=optimizer, precision="fp32").gather(1)
    tree["setting"] |= {"world size": 4, "torch": "1.0", "device": "cuda"}
    other = make_model().to(torch.float64)
    scheduler = lr_scheduler.StepLR(torch.optim.SGD(other.parameters(), 0.1), 2)
    told = TrainingState(model=other, scheduler=scheduler, precision="bf16").restore(tree)
    cast = "0.weight (torch.float32 to torch.float64)"
    ending = "now, so numbers differ in the last bits"
    assert told == [
        "loader: none was given, so the position in the data is not saved",
        f"model '0': 8 tensors change their precision, the first {cast}",
        "optimizer '0': in the checkpoint, and not given now",
        "scheduler '0': the checkpoint has none, so it starts anew",
        f"device: cuda at the save and cpu {ending}",
        f"precision: fp32 at the save and bf16 {ending}",
        f"torch: 1.0 at the save and {torch.__version__} {ending}",
        f"world size: 4 at the save and 1 {ending}",
    ]


class Loop:
    """A plain loop over ten batches that counts its steps."""

    def __init__(self, num_batches: int = 10) -> None:
        self.model = nn.Linear(1, 1)
        data = TensorDataset(torch.arange(float(num_batches)).unsqueeze(1))
        self.loader = DataLoader(data, 1, shuffle=True)
        self.step = 0
        self.seen: list[float] = []
        self.state = TrainingState(model=self.model, loader=self.loader)

    def resume(self, tree: Any) -> None:
        """Restore and take the step count over."""
        assert self.state.restore(tree) == []
        self.step = self.state.step or 0

    def run(self, num_steps: int) -> Any:
        """Train until so many steps are done here, or the pass ends; return the state then."""
        for (batch,) in self.loader:
            self.step += 1
            self.seen.append(batch.item())
            num_steps -= 1
            if not num_steps:
                return through_bytes(self.state.gather(self.step))
        return None


def test_steps_after_a_resume_in_an_epoch() -> None:
    """C057: ten batches, saved in the loop at step 5: five more, and the last step is 10."""
    first = Loop()
    tree = first.run(5)
    second = Loop()
    second.resume(tree)
    second.run(100)
    assert (len(second.seen), second.step) == (5, 10)
    assert sorted(first.seen + second.seen) == [float(i) for i in range(10)]


def test_second_and_third_resume_in_an_epoch() -> None:
    """C059: stopped after 30, 10 and 5 batches of one epoch: 30, 40, 45, and none twice."""
    seen, steps, tree = [], [], None
    for num_steps in (30, 10, 5):
        loop = Loop(64)
        if tree is not None:
            loop.resume(tree)
        tree = loop.run(num_steps)
        seen += loop.seen
        steps.append(loop.step)
    assert steps == [30, 40, 45]
    assert len(set(seen)) == 45


def test_save_between_restore_and_the_first_batch() -> None:
    """A state saved before the resumed pass has begun is the state that was restored."""
    first = Loop()
    tree = first.run(4)
    second = Loop()
    second.resume(tree)
    torch.rand(7)  # whatever the start-up draws
    again = through_bytes(second.state.gather(second.step))
    third = Loop()
    third.resume(again)
    torch.rand(5)
    drawn = []
    for loop in (third, second):
        loop.run(1)
        drawn.append(torch.rand(3).tolist())
    assert third.seen == second.seen
    assert third.seen[0] not in first.seen
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_dropout_and_scaler_go_on_on_a_device(
    device: str, require: Callable[[str, bool, str], None]
) -> None:
    """The stream of the device, its loss scale and its weights go on to the bit."""
    if device == "cuda":
        require("cuda", torch.cuda.is_available(), "no CUDA device")

    def make() -> tuple[Any, Any, Any, TrainingState]:
        model = nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5), nn.Linear(64, 1)).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler(device, growth_interval=2)
        loader = DataLoader(TensorDataset(torch.randn(8, 3)), 4)
        state = TrainingState(model=model, optimizer=optimizer, scaler=scaler, loader=loader)
        return model, optimizer, scaler, state

    def step(model: Any, optimizer: Any, scaler: Any) -> float:
        loss = model(torch.ones(5, 3, device=device)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.item()

    *parts, state = make()
    for _ in range(3):
        step(*parts)
    buffer = HostBuffer()
    snapshot = buffer.take(state.gather(3))
    buffer.hold()
    expected = [step(*parts) for _ in range(4)]
    saved = torch.frombuffer(bytearray(snapshot.view()), dtype=torch.uint8)
    torch.manual_seed(99)
    *others, resumed = make()
    assert resumed.restore(load_tree(snapshot.skeleton, saved)) == []
    assert [step(*others) for _ in range(4)] == expected
    assert others[2].get_scale() == parts[2].get_scale() > 65536
    assert bits(others[0].cpu().state_dict()) == bits(parts[0].cpu().state_dict())

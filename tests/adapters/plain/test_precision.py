"""`run.autocast()` and `run.scaler` in a real loop on the CPU."""

from __future__ import annotations

import copy
import math
import pickle
from contextlib import nullcontext

import pytest
import torch

from costlens.config import Config
from costlens.errors import ConfigError
from costlens.protect import plain_precision
from costlens.protect.plain_precision import PlainPrecision
from costlens.protect.precision import Hardware
from costlens.run import Run
from costlens.testing import MemoryExporter
from tests.adapters.plain.timed import Rig
from tests.log_events import capture_events


def make_model():
    """Return the same model each time."""
    torch.manual_seed(1)
    return torch.nn.Linear(4, 1)


def open_run(**settings):
    """Return an open run that exports to memory."""
    return Run(Config(summary=False, **settings), exporters=[MemoryExporter()]).open()


def train(run, model, optimizer, *, infinite_at=None, num=5):
    """Train as the README says; return the types of the outputs."""
    types = []
    for number in range(num):
        with run.iteration():
            with run.autocast():
                output = model(torch.ones(2, 4))
            loss = output.float().mean() * (math.inf if number == infinite_at else 1e-3)
            run.scaler.scale(loss).backward()
            run.scaler.step(optimizer)
            run.scaler.update()
            optimizer.zero_grad()
            types.append(output.dtype)
    return types


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("off", torch.float32),
        ("fp32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
    ],
)
def test_one_loop_serves_every_precision(setting, expected):
    """The same lines compute in what is asked for; every step is made and none counted skipped."""
    with open_run(precision=setting) as run:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run.watch(model, optimizer)
        assert set(train(run, model, optimizer)) == {expected}
        assert run.scaler.is_enabled() is (setting == "fp16")
        record = run.finish()
    assert (record.progress.optimizer_steps, record.progress.skipped_steps) == (5, 0)
    part = record.precision
    assert part is None if setting == "off" else part.effective == setting


@pytest.mark.parametrize("is_fused", [False, True])
def test_overflows_are_counted_without_being_told_of_the_scaler(is_fused):
    """C071: an infinite gradient in the third of five steps: 4 steps, 1 skipped, one halving."""
    run = open_run(precision="fp16")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=is_fused or None)
    run.watch(model, optimizer)
    train(run, model, optimizer, infinite_at=2)
    record = run.finish()
    assert record.progress.optimizer_steps == 4
    part = record.precision
    assert (part.skipped_steps, part.loss_scale, part.max_loss_scale) == (1, 32_768.0, 65_536.0)
    assert part.skipped_s == pytest.approx(record.iteration_time.sum_ns / 1e9 / 5)
    assert record.quality == {}
    assert "step" not in vars(run.scaler)


def test_a_training_that_only_overflows_is_told():
    """Seventeen skipped steps bring the scale from 65536 below 1, which is said once."""
    run = open_run(precision="fp16")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.watch(model, optimizer)
    with capture_events() as events:
        for _ in range(18):
            train(run, model, optimizer, infinite_at=0, num=1)
        record = run.finish()
    assert (record.progress.optimizer_steps, record.precision.loss_scale) == (0, 0.25)
    (event,) = [event for event in events if "precision" in event["event"]]
    assert event["event"] == "costlens.precision.loss_scale"


def test_the_time_of_skipped_steps_is_that_of_any_other():
    """On a fake clock: 60 ms an iteration, one of five steps skipped, the first not timed."""
    rig = Rig(precision="fp16")
    rig.run.watch(rig.net, rig.optimizer)
    for number in range(5):
        with rig.run.iteration():
            with rig.run.autocast():
                loss = rig.net(torch.ones(2, 4)).float().sum()
            rig.run.scaler.scale(loss * (math.inf if number == 2 else 1e-3)).backward()
            rig.run.scaler.step(rig.optimizer)
            rig.run.scaler.update()
            rig.optimizer.zero_grad()
    # The skipped one does not make its update, which takes 10 ms.
    assert rig.finish().precision.skipped_s == pytest.approx((3 * 0.06 + 0.05) / 5)


def test_a_scaler_alone_claims_no_skipped_steps():
    """Where no optimizer is watched, whether one was skipped is unknown and not every one."""
    run = open_run(precision="fp16")
    model = make_model()
    train(run, model, torch.optim.SGD(model.parameters(), 0.1))
    record = run.finish()
    assert record.progress.skipped_steps is None
    assert (record.precision.skipped_steps, record.precision.loss_scale) == (None, 65_536.0)


def test_the_scaler_goes_through_its_state():
    """A resumed loop loads the state into `run.scaler` and goes on where it was."""
    run = open_run(precision="fp16")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.watch(model, optimizer)
    train(run, model, optimizer, infinite_at=2)
    saved = run.scaler.state_dict()
    run.finish()
    again = open_run(precision="fp16")
    again.scaler.load_state_dict(saved)
    assert again.scaler.state_dict() == saved
    assert saved["scale"] == 32_768.0
    again.watch(model, optimizer)
    train(again, model, optimizer, num=1)
    assert again.finish().precision.loss_scale == 32_768.0


def test_weights_of_another_type_are_a_choice():
    """C072: a model the user has made bf16 is left alone, and so is an autocast around ours."""
    run = open_run(precision="fp16")
    model = make_model().bfloat16()
    run.watch(model)
    assert isinstance(run.autocast(), nullcontext)
    assert not run.scaler.is_enabled()
    part = run.finish().precision
    assert (part.requested, part.effective) == ("fp16", "bf16")
    assert part.reason == "the training has chosen bf16 itself"
    run = open_run(precision="fp16")
    with torch.autocast("cpu", dtype=torch.bfloat16), run.autocast():
        assert make_model()(torch.ones(1, 4)).dtype is torch.bfloat16
    assert run.finish().precision.effective == "bf16"


def test_what_nobody_asked_for_is_said():
    """A setting that the loop does not use has no effect, and the record says why."""
    part = open_run(precision="bf16").finish().precision
    assert (part.requested, part.effective) == ("bf16", None)
    assert "run.autocast()" in part.reason


def test_a_demand_that_would_be_emulated_is_loud(monkeypatch):
    """C072: asked of a V100, bf16 is an error where the loop first asks."""
    monkeypatch.setattr(plain_precision, "look_at_hardware", lambda _: Hardware("cuda", (7, 0)))
    with open_run(precision="bf16") as run, pytest.raises(ConfigError, match="only emulate"):
        run.autocast()


def test_a_resumed_run_keeps_its_precision(monkeypatch):
    """Better hardware changes nothing of a run that has begun in another format."""
    monkeypatch.setattr(plain_precision, "look_at_hardware", lambda _: Hardware("cuda", (8, 0)))
    told = []
    PlainPrecision("auto", lambda: None, told.append, earlier="fp16").autocast()
    PlainPrecision("auto", lambda: None, told.append).autocast()
    assert [part.effective for part in told] == ["fp16", "bf16"]


def test_a_run_that_goes_on_counts_on():
    """Opened again, a run counts the steps that the same scaler skips, each of them once."""
    run = open_run(precision="fp16")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        run.open()
        run.watch(model, optimizer)
        train(run, model, optimizer, infinite_at=2)
        record = run.finish()
    assert (record.progress.optimizer_steps, record.precision.skipped_steps) == (8, 2)
    assert record.precision.loss_scale == 16_384.0


def test_a_run_that_is_off_leaves_the_training_alone():
    """Switched off, copied or pickled, it autocasts nothing, whatever the setting says."""
    run = open_run(precision="bf16")
    for inert in (
        Run(Config(enabled=False, precision="bf16")).open(),
        copy.deepcopy(run),
        pickle.loads(pickle.dumps(run)),
    ):
        assert isinstance(inert.autocast(), nullcontext)
        assert not inert.scaler.is_enabled()
    run.finish()


def test_it_stays_after_the_end():
    """What a model computes in does not change because the run has been closed."""
    run = open_run(precision="bf16")
    with run.autocast():
        pass
    run.finish()
    with run.autocast():
        assert make_model()(torch.ones(1, 4)).dtype is torch.bfloat16


def test_a_resume_asks_the_checkpoint_what_the_run_computed_in(tmp_path, monkeypatch):
    """It keeps fp16 on hardware that has bf16, takes what there is where it cannot, and says so."""
    settings = {"precision": "auto", "checkpoint_url": str(tmp_path / "saved"), "name": "kept"}

    def attempt(hardware, **more):
        monkeypatch.setattr(plain_precision, "look_at_hardware", lambda _: hardware)
        with open_run(**settings, **more) as run:
            model = make_model()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            run.watch(model, optimizer)
            saved = run.checkpoints(model=model, optimizer=optimizer, scaler=run.scaler)
            assert saved.resume() == (0 if "resume" in more else run.attempt - 1)
            train(run, model, optimizer, num=1)
            saved.step()
            part = run.finish().precision
        return part.effective, part.reason

    best = Hardware("cuda", (8, 0))
    assert attempt(Hardware("cuda", (7, 0)))[0] == "fp16"
    assert attempt(best) == ("fp16", "the run began in fp16")
    effective, reason = attempt(Hardware("cpu"))
    assert (effective, reason.startswith("the run began in fp16, which this hardware")) == (
        "fp32",
        True,
    )
    assert attempt(best, resume="never")[0] == "bf16"

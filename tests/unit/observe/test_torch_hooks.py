"""Hooks on the user's objects are guests: copies are inert, faults are contained."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
import torch._dynamo
from torch import nn

from costlens.config import Config
from costlens.core.guard import faults
from costlens.errors import ConfigError
from costlens.run import Run
from costlens.testing import FakeClock


class Parts:
    """A watched model, optimizer and scaler."""

    def __init__(self):
        self.run = Run(Config(summary=False), clock=FakeClock(), exporters=[]).open()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu")
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)

    @property
    def counters(self):
        return self.run.parts.recorder.counters

    def train(self, model=None, optimizer=None):
        model, optimizer = model or self.model, optimizer or self.optimizer
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


@pytest.fixture
def parts():
    """Watched objects of an open run."""
    parts = Parts()
    yield parts
    parts.run.finish()


def test_a_watched_model_saves_loads_and_copies(parts):
    """torch.save, pickle and deepcopy work while watched (C132); the copies report nothing."""
    parts.train()
    buffer = io.BytesIO()
    torch.save(parts.model, buffer)
    buffer.seek(0)
    copies = [
        torch.load(buffer, weights_only=False),
        pickle.loads(pickle.dumps(parts.model)),
        copy.deepcopy(parts.model),
        copy.deepcopy(copy.deepcopy(parts.model)),
    ]
    for copied in copies:
        optimizer = torch.optim.AdamW(copied.parameters())
        before = parts.run.parts.timeline.since_ns, parts.counters.optimizer_steps
        parts.train(copied, optimizer)
        assert (parts.run.parts.timeline.since_ns, parts.counters.optimizer_steps) == before
        assert copied(torch.ones(2, 4)).shape == (2, 1)


def test_optimizers_and_scalers_copy_inert(parts):
    """Copies and pickles of a watched optimizer and scaler work, and count nothing."""
    parts.train()
    for make in (copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))):
        optimizer, scaler = make(parts.optimizer), make(parts.scaler)
        before = parts.counters.optimizer_steps, parts.counters.skipped_steps
        optimizer.step()
        assert scaler.step.__self__ is scaler
        assert scaler.step.__func__ is torch.amp.GradScaler.step
        assert (parts.counters.optimizer_steps, parts.counters.skipped_steps) == before
    parts.scaler.load_state_dict(parts.scaler.state_dict())
    parts.optimizer.load_state_dict(parts.optimizer.state_dict())


def test_a_saved_model_loads_where_costlens_is_not_installed(parts, tmp_path):
    """The pickle names nothing of ours: a server without costlens loads and runs it."""
    path = tmp_path / "model.pt"
    torch.save(parts.model, path)
    program = (
        "import sys, torch\n"
        "sys.modules['costlens'] = None\n"
        f"model = torch.load({str(path)!r}, weights_only=False)\n"
        "model(torch.ones(2, 4)).sum().backward()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_a_copied_model_compiles_in_one_graph(parts):
    """The stand-ins that copies carry break no graph either."""
    copied = copy.deepcopy(parts.model)
    expected = parts.model(torch.ones(2, 4))
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="eager")
    def doubled(value):
        return copied(value) * 2

    assert torch.equal(doubled(torch.ones(2, 4)), expected * 2)
    torch._dynamo.reset()


def test_outputs_can_be_hooked_and_pickled_by_the_user(parts):
    """The user's own hook on an output works and goes; saving the output does not warn of ours."""
    seen = []
    output = parts.model(torch.ones(2, 4))
    handle = output.register_hook(lambda gradient: seen.append(float(gradient.sum())))
    output.sum().backward(retain_graph=True)
    handle.remove()
    output.sum().backward()
    assert seen == [2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.dumps(parts.model(torch.ones(2, 4)).detach())
        torch.save(parts.model(torch.ones(2, 4)), io.BytesIO())


def test_the_backward_hook_is_called_once_a_backward(parts, monkeypatch):
    """However torch keeps it, the hook on an output fires once for a pass."""
    calls = []
    loop = parts.run._plain_loop()
    plain = loop.begin_backward
    monkeypatch.setattr(loop, "begin_backward", lambda: calls.append(1) or plain())
    parts.model(torch.ones(2, 4)).sum().backward()
    assert len(calls) == 1


def test_a_fault_of_a_hook_does_not_reach_the_training(parts, monkeypatch):
    """A hook that breaks is counted; the training step goes through."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})

    def fail(*_args, **_kwargs):
        raise RuntimeError("a fault of ours")

    loop = parts.run._plain_loop()
    for name in ("begin_forward", "begin_backward", "begin_step", "begin_fetch"):
        monkeypatch.setattr(loop, name, fail)
    for batch in parts.run.batches([torch.ones(2, 4)] * 2):
        parts.model(batch).sum().backward()
        parts.optimizer.step()
    # Two forwards and two steps; what never opened is not closed either.
    assert faults.counts["plain.hook"] == 4
    assert faults.counts["plain.loop"] == 4


def test_wrong_arguments_are_named(parts):
    """The error says what was given and what is allowed, and nothing is half watched."""
    with pytest.raises(ConfigError, match=r"torch\.nn\.Module as the model, not builtins\.dict"):
        parts.run.watch({})
    model = nn.Linear(1, 1)
    with pytest.raises(ConfigError, match=r"the torch optimizer that it wraps"):
        parts.run.watch(model, object())
    with pytest.raises(ConfigError, match=r"a GradScaler as scaler="):
        parts.run.watch(model, parts.scaler)
    with pytest.raises(ConfigError, match=r"gradient scaler"):
        parts.run.watch(model, scaler=3)
    assert not model._forward_hooks


def test_a_forked_copy_of_a_run_reports_nothing(parts, monkeypatch):
    """In a forked child, where a run is inactive, the hooks are still there and do nothing."""
    parts.train()
    watched = parts.run.batches([torch.ones(2, 4)] * 2)
    monkeypatch.setattr(parts.run, "is_active", False)
    before = parts.counters.optimizer_steps, parts.run.parts.timeline.since_ns
    for batch in watched:
        parts.model(batch).sum().backward()
        parts.optimizer.step()
        parts.scaler.scale(parts.model(batch).sum()).backward()
        parts.scaler.step(parts.optimizer)
        parts.scaler.update()
    assert (parts.counters.optimizer_steps, parts.run.parts.timeline.since_ns) == before
    monkeypatch.undo()


def test_a_run_that_is_off_watches_nothing():
    """COSTLENS_ENABLED=0: watch() is a no-op."""
    model = nn.Linear(1, 1)
    Run(Config(enabled=False)).open().watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not model._forward_hooks


def test_an_optimizer_whose_step_calls_the_inherited_one_counts_once(parts):
    """Both methods have torch's hooks once an instance of the base class exists."""

    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    torch.optim.SGD(parts.model.parameters(), lr=0.1).step()
    optimizer = Mine(parts.model.parameters(), lr=0.1)
    parts.run.watch(parts.model, optimizer)
    for _ in range(3):
        parts.train(optimizer=optimizer)
    assert parts.counters.optimizer_steps == 3


def test_a_step_that_failed_does_not_hide_the_next_ones(parts):
    """Without loader or scopes around: a step that raised is over once training goes on."""
    for number in range(4):

        def closure(number=number):
            if number == 1:
                raise MemoryError

        parts.model(torch.ones(2, 4)).sum().backward()
        try:
            parts.optimizer.step(closure)
        except MemoryError:
            continue
    assert parts.counters.optimizer_steps == 3
    assert parts.run.parts.timeline.depth == 0

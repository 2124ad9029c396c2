"""Watching changes no number: losses and weights are bitwise those of the unwatched training."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from costlens.config import Config
from costlens.run import Run
from costlens.testing import MemoryExporter


class Tokens(Dataset):
    """Rows of integers, with noise from the worker's own generator."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, 16, (8,), generator=generator) + torch.randint(0, 2, (8,)) * 0


@dataclasses.dataclass
class Answer:
    """An output that is neither tensor nor dictionary."""

    logits: torch.Tensor


class Net(nn.Module):
    """Integers in; dropout inside; the answer comes in the shape that is asked for."""

    def __init__(self, form):
        super().__init__()
        self.embed = nn.Embedding(18, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16))
        self.head = nn.Linear(16, 1)
        self.form = form

    def forward(self, ids):
        hidden = self.embed(ids).mean(1)
        if self.form == "checkpoint":
            hidden = checkpoint(self.body, hidden, use_reentrant=False)
        elif self.form == "checkpoint_reentrant":
            hidden = checkpoint(self.body, hidden, use_reentrant=True)
        else:
            hidden = self.body(hidden)
        logits = self.head(hidden)
        forms = {"dict": {"logits": logits}, "dataclass": Answer(logits), "tuple": (1, logits)}
        return forms.get(self.form, logits)


def _logits(output, form):
    if form == "dict":
        return output["logits"]
    if form == "dataclass":
        return output.logits
    if form == "tuple":
        return output[1]
    if form == "in_place":
        output += 1.0
        output.mul_(2.0)
    return output


def _build(form, wrap):
    torch.manual_seed(7)
    net = Net(form)
    if form == "two_optimizers":
        optimizers = [
            torch.optim.AdamW(net.body.parameters(), lr=0.01),
            torch.optim.SGD([*net.embed.parameters(), *net.head.parameters()], lr=0.1),
        ]
    else:
        optimizers = [torch.optim.AdamW(net.parameters(), lr=0.01)]
    return net, wrap(net), optimizers


def _train(form, num_workers, wrap, run=None):
    """Return losses, weights and the state of the random generator after 50 steps."""
    net, model, optimizers = _build(form, wrap)
    loader = DataLoader(
        Tokens(), batch_size=4, shuffle=True, num_workers=num_workers, multiprocessing_context=None
    )
    batches = loader
    if run is not None:
        run.watch(model, *optimizers)
        batches = run.batches(loader)
    losses = []
    for _ in range(2):
        for batch in batches:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = _logits(model(batch), form).square().mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach())
    return SimpleNamespace(
        losses=torch.stack(losses),
        weights=[parameter.detach().clone() for parameter in net.parameters()],
        generator=torch.get_rng_state(),
    )


def _assert_same(first, second):
    assert torch.equal(first.losses, second.losses)
    assert all(torch.equal(a, b) for a, b in zip(first.weights, second.weights, strict=True))
    assert torch.equal(first.generator, second.generator)


def _watched(form, num_workers=0, wrap=lambda net: net):
    exporter = MemoryExporter()
    with Run(Config(summary=False), exporters=[exporter]) as run:
        result = _train(form, num_workers, wrap, run)
    record = exporter.record
    assert sum(record.time_ns.values()) == record.total_ns
    assert record.telemetry.faults == {}
    assert record.progress.iterations == record.progress.micro_batches == 50
    return result, record


FORMS = [
    "tensor",
    "dict",
    "dataclass",
    "tuple",
    "in_place",
    "checkpoint",
    "checkpoint_reentrant",
    "two_optimizers",
]


@pytest.mark.parametrize("form", FORMS)
def test_fifty_steps_are_bitwise_equal(form):
    """Dropout, integer inputs, every shape of output, checkpointing, several optimizers."""
    result, record = _watched(form)
    _assert_same(result, _train(form, 0, lambda net: net))
    assert record.progress.optimizer_steps == (100 if form == "two_optimizers" else 50)
    for name in ("forward", "backward", "optimizer", "data_wait"):
        assert record.time_ns[name] > 0, name


@pytest.mark.parametrize("num_workers", [0, 2])
def test_worker_processes_make_no_difference(num_workers):
    """Two workers or none: the order, the noise and the weights are those of an unwatched run."""
    result, _ = _watched("tensor", num_workers)
    _assert_same(result, _train("tensor", num_workers, lambda net: net))


@pytest.fixture
def fresh_compiler():
    """Forget compiled code before and after, and count graphs from 0."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def _compile(net):
    return torch.compile(net, fullgraph=True, backend="aot_eager")


def _compile_in_place(net):
    net.compile(fullgraph=True, backend="aot_eager")
    return net


@pytest.mark.parametrize("wrap", [_compile, _compile_in_place])
def test_a_compiled_model_stays_one_graph_and_equal(wrap, fresh_compiler):
    """fullgraph=True: the hooks break no graph, and forward and backward are still seen."""
    result, record = _watched("tensor", wrap=wrap)
    num_graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    _assert_same(result, _train("tensor", 0, wrap))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == num_graphs
    assert record.time_ns["forward"] > 0
    assert record.time_ns["backward"] > 0


def test_the_inner_model_of_a_compiled_one_can_be_watched(fresh_compiler):
    """Watching before compiling works, too."""
    torch.manual_seed(0)
    net = Net("tensor")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    exporter = MemoryExporter()
    with Run(Config(summary=False), exporters=[exporter]) as run:
        run.watch(net, optimizer)
        compiled = _compile(net)
        for _ in range(4):
            compiled(torch.zeros(4, 8, dtype=torch.int64)).sum().backward()
            optimizer.step()
    assert exporter.record.progress.iterations == 4
    assert exporter.record.time_ns["forward"] > 0


def test_a_larger_compiled_function_may_call_the_model(fresh_compiler):
    """The model inside a compiled, unbroken function: no error; its time stays compute."""
    torch.manual_seed(0)
    net = Net("tensor")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss_of(ids):
        return net(ids).square().mean()

    exporter = MemoryExporter()
    with Run(Config(summary=False), exporters=[exporter]) as run:
        run.watch(net, optimizer)
        for _ in range(4):
            with run.iteration():
                loss_of(torch.zeros(4, 8, dtype=torch.int64)).backward()
                optimizer.step()
    record = exporter.record
    assert (record.progress.iterations, record.progress.optimizer_steps) == (4, 4)
    assert record.time_ns["compute"] > 0
    assert record.time_ns["forward"] == 0


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch imports torch.jit
def test_a_compiled_optimizer_still_counts_its_steps(fresh_compiler):
    """torch.compile(optimizer.step) breaks the graph by itself; the hooks count all the same."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    exporter = MemoryExporter()
    with Run(Config(summary=False), exporters=[exporter]) as run:
        run.watch(net, optimizer)
        for _ in range(3):
            with run.iteration():
                net(torch.ones(2, 4)).sum().backward()
                step()
    assert exporter.record.progress.optimizer_steps == 3


def test_functional_transforms_of_a_watched_model_work():
    """torch.func.grad and vmap call the model inside a transform; the hooks stay out of the way."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def loss_of(parameters, sample):
        return torch.func.functional_call(net, parameters, (sample,)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))
    expected = per_sample(parameters, torch.ones(3, 4))
    with Run(Config(summary=False), exporters=[]) as run:
        run.watch(net, torch.optim.SGD(net.parameters(), lr=0.1))
        gradients = per_sample(parameters, torch.ones(3, 4))
    assert torch.equal(gradients["weight"], expected["weight"])


def test_second_derivatives_and_retained_graphs_work():
    """A gradient penalty: the graph is walked twice, and the numbers are those without hooks."""

    def penalty(run=None):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        if run is not None:
            run.watch(net, torch.optim.SGD(net.parameters(), lr=0.1))
        inputs = torch.ones(2, 4, requires_grad=True)
        output = net(inputs)
        (gradient,) = torch.autograd.grad(output.sum(), inputs, create_graph=True)
        (output.sum() + gradient.square().sum()).backward(retain_graph=True)
        output.sum().backward()
        return [parameter.grad for parameter in net.parameters()]

    with Run(Config(summary=False), exporters=[]) as run:
        watched = penalty(run)
        assert run.parts.timeline.depth == 0
    assert all(torch.equal(a, b) for a, b in zip(watched, penalty(), strict=True))

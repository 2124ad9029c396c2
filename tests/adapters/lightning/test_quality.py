"""What a Trainer logged on its way to the pipeline, without a Trainer."""

from __future__ import annotations

import math
from array import array

import pytest
import torch

from costlens.observe.device_values import DeviceValues
from costlens.observe.trainer.quality import QualityReader
from costlens.testing import FakeClock


class Unread(torch.Tensor):
    """Fails the test that reads it."""

    def item(self):
        raise AssertionError("the loss was read")


@pytest.fixture
def values() -> DeviceValues:
    """Return what takes the values, as in a run."""
    return DeviceValues(FakeClock())


def _taken(values: DeviceValues) -> list[tuple[str, float, int]]:
    return [(seen.name, seen.value, seen.number) for seen in values.take_metrics()]


@pytest.mark.parametrize(
    "loss",
    [
        torch.tensor(1.5),
        torch.tensor([1.5]),
        torch.tensor(1.5, dtype=torch.float64),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.tensor(1.5, dtype=torch.half),
        torch.tensor([0.0, 1.5, 0.0])[1],
        torch.frombuffer(bytearray(b"_" + array("f", [1.5])), dtype=torch.float32, offset=1),
        torch.frombuffer(bytearray(b"____" + array("d", [1.5])), dtype=torch.float64, offset=4),
        torch.tensor(1.5, requires_grad=True),
        torch.tensor(complex(0, -1.5)).conj().imag,
        torch.tensor(1.5).as_subclass(Unread),
        1.5,
    ],
)
@pytest.mark.parametrize("factor", [1, 4])
def test_any_loss_is_taken_as_it_is(values, loss, factor) -> None:
    """Whatever a loss is made of, its number arrives, times what Lightning divided it by."""
    QualityReader(values, ()).read_batch({"loss": loss}, factor, 3)
    assert _taken(values) == [("loss", 1.5 * factor, 3)]


@pytest.mark.parametrize("outputs", [None, {}, {"loss": None}, torch.tensor(1.0)])
def test_a_batch_without_a_loss_has_none(values, outputs) -> None:
    """A step that was skipped gives nothing, rather than a 0."""
    QualityReader(values, ()).read_batch(outputs, 1, 0)
    assert _taken(values) == []


def test_a_loss_that_is_no_number_passes(values) -> None:
    """NaN and infinity arrive, to be counted apart."""
    reader = QualityReader(values, ())
    for at, loss in enumerate((math.nan, -math.inf)):
        reader.read_batch({"loss": torch.tensor(loss)}, 1, at)
    first, second = _taken(values)
    assert math.isnan(first[1])
    assert second == ("loss", -math.inf, 1)


def test_a_loss_that_changes_later_has_the_number_it_had(values) -> None:
    """No tensor of the user is kept: what is done to it afterwards changes nothing."""
    loss = torch.tensor(1.0, dtype=torch.bfloat16)
    QualityReader(values, ()).read_batch({"loss": loss}, 1, 0)
    loss.fill_(7)
    assert _taken(values) == [("loss", 1.0, 0)]


def test_logged_values_are_taken_once_each(values) -> None:
    """A value is taken when it is new, by the globs, and under the names of the run."""
    reader = QualityReader(values, ("val_*", "loss"))
    logged = {"val_loss": torch.tensor(2.0), "lr": 0.1, "grad_2.0_norm_total": torch.tensor(3.0)}
    reader.read_logged(logged, 5)
    reader.read_logged(logged, 6)
    assert _taken(values) == [("val_loss", 2.0, 5), ("grad_norm", 3.0, 5)]
    reader.read_logged({**logged, "val_loss": torch.tensor(1.0)}, 7)
    assert _taken(values) == [("val_loss", 1.0, 7)]


def test_a_logged_loss_does_not_double_the_steps_own(values) -> None:
    """Once steps give their loss, a logged mean of the same name is left out."""
    reader = QualityReader(values, ("loss",))
    reader.read_logged({"loss": 9.0}, 0)
    reader.read_batch({"loss": torch.tensor(1.0)}, 1, 1)
    reader.read_logged({"loss": 8.0}, 2)
    assert [value for _, value, _ in _taken(values)] == [9.0, 1.0]


def test_a_learning_rate_is_taken_when_it_changes(values) -> None:
    """A rate that stays is one value; a tensor is never compared, for that would wait."""
    weights = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weights], lr=0.5)
    reader = QualityReader(values, ())
    for at, rate in enumerate((0.5, 0.5, 0.25)):
        optimizer.param_groups[0]["lr"] = rate
        reader.read_learning_rate(optimizer, at)
    assert _taken(values) == [("learning_rate", 0.5, 0), ("learning_rate", 0.25, 2)]
    optimizer.param_groups[0]["lr"] = torch.tensor(0.125)
    reader.read_learning_rate(optimizer, 3)
    assert _taken(values) == [("learning_rate", 0.125, 3)]

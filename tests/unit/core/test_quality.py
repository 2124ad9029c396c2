"""Quality metrics: bounded, finite, in their own direction."""

from __future__ import annotations

import math

import pytest

from costlens.core.quality import MAX_NAMES, Observation, QualityBook, improves_upwards


def test_bad_values_are_counted_and_never_summed() -> None:
    """C073: losses 1, NaN, inf, 2 have a finite sum, two bad values, and one alarm at the first."""
    book = QualityBook()
    for iteration, loss in enumerate((1.0, math.nan, math.inf, 2.0)):
        book.add("loss", loss, iteration, 10 * iteration)
    (alarm,) = book.fold()
    loss = book.take().attempt["loss"]
    assert (alarm.iteration, alarm.name) == (1, "loss")
    assert (loss.total, loss.num_values, loss.num_nonfinite) == (3.0, 2, 2)
    assert loss.first_nonfinite_iteration == 1
    assert (loss.last, loss.last_iteration, loss.best, loss.best_ns) == (2.0, 3, 1.0, 0)
    book.add("loss", -math.inf, 4, 40)
    assert book.fold() == []


def test_a_metric_that_was_never_finite_has_no_values() -> None:
    """Nothing but NaN leaves last and best unknown."""
    book = QualityBook()
    book.add("loss", math.nan, 0, 0)
    book.fold()
    loss = book.take().attempt["loss"]
    assert (loss.last, loss.best, loss.num_values, loss.total) == (None, None, 0, 0.0)


@pytest.mark.parametrize(
    ("name", "is_upwards"),
    [
        ("loss", False),
        ("val_loss", False),
        ("perplexity", False),
        ("grad_norm", False),
        ("val/Accuracy", True),
        ("f1", True),
        ("val_mAP50", True),
        ("accuracy_loss", False),
        ("smape", False),
        ("brier_score", False),
    ],
)
def test_the_direction_is_read_from_the_name(name: str, is_upwards: bool) -> None:
    """Scores go up, losses and errors go down, and the unknown is taken for a loss."""
    assert improves_upwards(name) is is_upwards


def test_the_best_value_is_the_best_in_its_direction() -> None:
    """Accuracy is best at its highest, with the iteration and the time it was reached."""
    book = QualityBook()
    for iteration, value in enumerate((0.5, 0.9, 0.7, 0.9)):
        book.add("val_acc", value, iteration, 100 + iteration)
    book.fold()
    seen = book.take().attempt["val_acc"]
    assert (seen.best, seen.best_iteration, seen.best_ns, seen.last) == (0.9, 1, 101, 0.9)


def test_a_window_holds_what_came_since_the_last() -> None:
    """The attempt goes on, the window begins anew; looking takes nothing."""
    book = QualityBook()
    book.add("loss", 4.0, 0, 0)
    book.fold()
    assert book.look().window["loss"].total == 4.0
    assert book.take().window["loss"].total == 4.0
    book.add("loss", 2.0, 1, 1)
    book.fold()
    quality = book.take()
    assert quality.window["loss"].total == 2.0
    assert quality.attempt["loss"].total == 6.0
    assert book.take().window == {}


def test_what_was_taken_does_not_change_any_more() -> None:
    """An exporter may keep a snapshot while the run goes on."""
    book = QualityBook()
    book.add("loss", 4.0, 0, 0)
    book.fold()
    taken, looked = book.take(), book.look()
    book.add("loss", 1.0, 1, 1)
    book.fold()
    assert taken.attempt["loss"].last == looked.attempt["loss"].last == 4.0
    assert taken.window["loss"].num_values == 1


def test_names_and_values_are_bounded_and_the_rest_is_counted() -> None:
    """A metric per layer cannot grow the record; a flood cannot grow the memory."""
    book = QualityBook()
    for index in range(MAX_NAMES + 3):
        book.add(f"layer_{index}", 1.0, 0, 0)
    book.fold()
    assert len(book.take().attempt) == MAX_NAMES
    assert book.num_dropped == 3
    for iteration in range(8192 + 5):
        book.add("layer_0", 1.0, iteration, 0)
    assert book.num_dropped == 8
    book.fold()
    assert book.take().attempt["layer_0"].last_iteration == 8191


def test_an_observation_is_a_flat_tuple() -> None:
    """It is made on the training thread: no dataclass, no dictionary."""
    assert Observation("loss", 1.0, 2, 3) == ("loss", 1.0, 2, 3)

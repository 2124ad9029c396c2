"""What comes of a precision: the cost of skipped steps, the scale, and two warnings."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.precision_records import PrecisionPart
from costlens.observe.precision_watch import PrecisionWatch
from tests.log_events import capture_events
from tests.unit.export.rehearsal import Rehearsal


class Scene:
    """A watch over counters and times that a test sets."""

    def __init__(self, requested: Any = "auto") -> None:
        self.state = Rehearsal().state
        self.counts: dict[str, int] = {}
        self.total_ns = 0
        self.watch = PrecisionWatch(
            requested, self.state, lambda: self.counts, lambda: self.total_ns
        )

    def pass_by(self, real: int, skipped: int, seconds: float = 0.0) -> PrecisionPart | None:
        """Let steps be made and skipped in some time, and look."""
        self.counts["optimizer_steps"] = self.counts.get("optimizer_steps", 0) + real
        self.counts["skipped_steps"] = self.counts.get("skipped_steps", 0) + skipped
        self.total_ns += round(seconds * NS_PER_S)
        self.watch.look()
        return self.state.precision


def test_skipped_steps_cost_their_share_of_the_time_they_were_made_in() -> None:
    """Of 10 s with 8 + 2 steps 2 s; seconds without a step are those of the next one."""
    scene = Scene()
    assert scene.pass_by(8, 2, seconds=10).skipped_s == 2
    assert scene.pass_by(10, 0, seconds=10).skipped_s == 2
    assert scene.pass_by(0, 0, seconds=5).skipped_s == 2
    assert scene.pass_by(0, 1, seconds=1).skipped_s == 8
    assert scene.state.precision.skipped_steps == 3


def test_unknown_steps_have_no_cost() -> None:
    """Where no optimizer is watched, both are absent and not 0."""
    scene = Scene()
    scene.watch.look()
    part = scene.state.precision
    assert (part.skipped_steps, part.skipped_s, part.loss_scale) == (None, None, None)


def test_the_scale_is_kept_with_its_range() -> None:
    """The newest, the lowest and the highest; what is no number is none."""
    scene = Scene()
    for scale in (65_536.0, 16_384.0, float("inf"), float("nan"), 32_768.0):
        scene.watch.see_scale(scale)
    part = scene.pass_by(1, 0)
    assert (part.loss_scale, part.min_loss_scale, part.max_loss_scale) == (32768, 16384, 65536)


def test_what_the_door_chose_is_kept() -> None:
    """Requested, effective and reason are the door's; the numbers come beside them."""
    scene = Scene()
    chosen = PrecisionPart(requested="auto", effective="fp16", reason="a GPU of 7.0")
    scene.state.chosen_precision = chosen
    part = scene.pass_by(3, 1, seconds=4)
    assert (part.effective, part.reason, part.skipped_s) == ("fp16", "a GPU of 7.0", 1)
    assert scene.state.chosen_precision is chosen


def test_a_setting_without_effect_is_told_once() -> None:
    """A loop that trains and has not asked by the end of its first iteration never will."""
    scene = Scene("bf16")
    with capture_events() as events:
        scene.watch.look()
        assert events == []
        for scene.counts["iterations"] in (1, 2):
            scene.watch.look()
    (event,) = events
    assert event["event"] == "costlens.precision.unused"
    assert "run.autocast()" in event["message"]
    assert "run.autocast()" in scene.state.precision.reason


def test_off_and_nothing_skipped_is_nothing_to_say() -> None:
    """A plain fp32 loop has no such part; a scaler of the user's own has."""
    scene = Scene("off")
    assert scene.pass_by(5, 0) is None
    scene.watch.see_scale(1024.0)
    assert scene.pass_by(5, 1).loss_scale == 1024.0


@pytest.mark.parametrize("at_once", [1, 40, 1000])
def test_many_skips_after_the_warm_up_are_told_once(at_once: int) -> None:
    """Over 5 % of 200 steps or more, however seldom is looked; the warm-up does not count."""
    scene = Scene()
    with capture_events() as events:
        for _ in range(20):
            scene.pass_by(0, 10)  # the scale comes down from far too high
        for _ in range(2000 // at_once):
            scene.pass_by(at_once, 0)
        assert events == []
        for _ in range(800):
            scene.pass_by(9, 1)
    (event,) = events
    assert (event["event"], event["log_level"]) == ("costlens.precision.skipping", "warning")
    assert "bf16" in event["message"]


def test_few_skips_are_normal() -> None:
    """A scale that grows every so often overflows now and then: 5 % and less is no alarm."""
    scene = Scene()
    with capture_events() as events:
        for _ in range(300):
            scene.pass_by(19, 1)
    assert events == []
    assert len(scene.watch._history) <= 201


def test_a_scale_below_one_is_told_once() -> None:
    """Gradients then overflow whatever is done about it."""
    scene = Scene()
    with capture_events() as events:
        for scale in (2.0, 1.0, 0.5, 0.25):
            scene.watch.see_scale(scale)
    (event,) = events
    assert event["event"] == "costlens.precision.loss_scale"
    assert "0.5" in event["message"]

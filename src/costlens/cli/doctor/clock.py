"""Is the clock right? Spans and metrics of hosts line up by it, and object stores refuse by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from costlens.cli.doctor.answer import Answer, ok, problem, skipped, warning
from costlens.cli.doctor.endpoint import EXPORT_TIMEOUT_S
from costlens.core.clock import clock_offset_s

__all__ = ["check_clock", "judge_offset"]

# A Date header is cut to whole seconds, and takes its time to come.
_NOTICED_S = 3.0
_REFUSED_S = 300.0
_FIX = "let NTP set it: chronyc tracking, or timedatectl, shows its state"


def check_clock() -> Iterator[Answer]:
    """Yield how far the clock is off, by an HTTP endpoint's, and whether NTP keeps it."""
    answers = [*_against_endpoint(), *_by_kernel()]
    yield from answers or [skipped("neither an HTTP endpoint nor the kernel tells")]


def _against_endpoint() -> Iterator[Answer]:
    from costlens.export.otel_check import ask_endpoint, look_up_settings

    signals = look_up_settings().signals.values()
    over_http = (each for each in signals if each.protocol == "http/protobuf" and each.is_usable)
    asked = next(over_http, None)
    if asked is None:
        return
    before_s = time.time()
    date = ask_endpoint(asked, EXPORT_TIMEOUT_S).server_date
    after_s = time.time()
    if date is None:
        return
    try:
        server_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    yield judge_offset(clock_offset_s(server_s, before_s, after_s), asked.target)


def judge_offset(offset_s: float, against: str) -> Answer:
    """Return what an offset means.

    Args:
        offset_s: Seconds that the other clock is ahead, negative where it is behind.
        against: Whose clock it is.
    """
    side = "behind" if offset_s > 0 else "ahead of"
    facts = {"offset_s": offset_s, "against": against}
    if abs(offset_s) < _NOTICED_S:
        return ok(f"within {_NOTICED_S:g} s of {against}", facts)
    told = f"this clock is {abs(offset_s):.0f} s {side} {against}"
    if abs(offset_s) < _REFUSED_S:
        return warning(f"{told}: hosts do not line up in traces", _FIX, facts)
    return problem(f"{told}: stores and back-ends may refuse what is sent", _FIX, facts)


def _by_kernel() -> Iterator[Answer]:
    from costlens.observe.kernel_clock import read_clock_state

    state = read_clock_state()
    if state is None:
        return
    facts = {"is_synchronized": state.is_synchronized, "max_error_s": state.max_error_s}
    if state.is_synchronized:
        yield ok("the kernel's clock is kept in step", facts)
    else:
        yield warning("nobody keeps the kernel's clock in step, as far as it knows", _FIX, facts)

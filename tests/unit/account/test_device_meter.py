"""The sums of a device: what an interval counts, and what a hole in the samples leaves out."""

from __future__ import annotations

from costlens.account.device_meter import DeviceIdentity, DeviceMeter, Sample

S = 1_000_000_000


def _meter(*samples: Sample) -> DeviceMeter:
    meter = DeviceMeter(DeviceIdentity("GPU-1", name="H100"))
    for sample in samples:
        meter.add(sample)
    return meter


def test_busy_time_is_the_area_under_the_utilization() -> None:
    """A line between samples: 0 to 1 over 2 s is one busy second."""
    part = _meter(
        Sample(0, {"utilization": 0.0}), Sample(2 * S, {"utilization": 1.0}), Sample(4 * S)
    ).part()
    assert (part.busy_s, part.utilization_s, part.sampled_s) == (1.0, 2.0, 4.0)
    assert part.utilization is None, "the newest sample did not tell it"


def test_a_hole_between_samples_counts_for_nothing() -> None:
    """A stopped process sampled nothing: no mean may reach over that."""
    busy = {"utilization": 1.0}
    part = _meter(Sample(0, busy), Sample(2 * S, busy), Sample(600 * S, busy)).part()
    assert (part.busy_s, part.sampled_s) == (2.0, 2.0)


def test_the_same_moment_counts_once() -> None:
    """The last sample of an attempt may come right after the one before."""
    meter = _meter(Sample(0, {"power_watts": 1.0}), Sample(0, {"power_watts": 9.0}))
    assert meter.part().power_watts == 1.0


def test_what_is_not_told_is_absent() -> None:
    """No throttle time, no errors, no activity: not 0 and not an empty promise."""
    part = _meter(Sample(0), Sample(2 * S)).part()
    assert part.throttle_s is None
    assert (part.errors, part.io_bytes, part.activity) == ({}, {}, {})
    assert part.energy_joules is None


def test_the_peak_outlives_the_newest() -> None:
    """Memory that was freed before the last sample was needed all the same."""
    part = _meter(
        Sample(0, {"memory_used_bytes": 7}), Sample(2 * S, {"memory_used_bytes": 3})
    ).part()
    assert (part.memory_used_bytes, part.memory_peak_bytes) == (3, 7)


def test_error_codes_are_unknown_where_nobody_listens() -> None:
    """An XID count of 0 is a claim."""
    meter = _meter(Sample(0))
    meter.hear((), "not_supported")
    assert "xid" not in meter.part().errors
    assert meter.part().absent["xid"] == "not_supported"
    meter.hear(())
    assert meter.part().errors["xid"] == 0
    meter.hear((31, 79))
    meter.hear(())
    assert (meter.part().errors["xid"], meter.part().last_xid) == (2, 79)

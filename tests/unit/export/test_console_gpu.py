"""The GPU section of the report."""

from __future__ import annotations

import io

from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.device_records import GpuDriverPart, GpuPart
from costlens.core.run_record import RunRecord
from costlens.export.console import render
from tests.unit.account.build import START, make_record
from tests.unit.export.rehearsal import make_gpu

GIB = 2**30


def _page(record: RunRecord, width: int = 80) -> str:
    out = io.StringIO()
    render(record, Console(file=out, width=width), now=START + 10)
    return out.getvalue()


def _job(*gpus: GpuPart, device: str = "cuda", **driver: str) -> RunRecord:
    record = make_record()
    part = record.rank.model_copy(update={"device": device})
    told = GpuDriverPart.model_validate(driver) if driver else None
    update = {"gpus": list(gpus), "rank": part, "gpu_driver": told}
    return merge([record.model_copy(update=update)], now=START + 10)


def test_a_row_for_each_and_one_for_all() -> None:
    """Busy share, memory, power and energy in units people read; a loss and an error stand out."""
    memory = {"memory_used_bytes": 20 * GIB, "memory_total_bytes": 80 * GIB}
    lost = make_gpu("GPU-bbbbbbbb-1", is_lost=True, power_watts=None, last_xid=79, **memory)
    page = _page(_job(make_gpu("GPU-aaaaaaaa-1", **memory), lost))
    first = next(line for line in page.splitlines() if "GPU-aaaaaaaa" in line)
    for figure in ("40.0 %", "20.0/80 GiB", "300/700 W", "1.67 Wh", "power cap 2.00 s"):
        assert figure in first
    second = page.partition("GPU-bbbbbbbb")[2]
    assert "lost" in second
    assert "error 79" in second
    total = next(line for line in page.splitlines() if "2 GPUs" in line)
    assert "3.33 Wh" in total


def test_no_gpu_no_section() -> None:
    """A training on the CPU has nothing to say of GPUs."""
    assert "GPU" not in _page(_job(device="cpu", reason="no_library"))


def test_a_gpu_that_nobody_could_read_is_told() -> None:
    """Where a rank drives one, the reader learns why there is nothing."""
    assert "are of two versions" in _page(_job(reason="version_mismatch"), width=100)


def test_many_devices_stay_a_page() -> None:
    """Rows stop at sixteen; the rest is counted."""
    page = _page(_job(*(make_gpu(f"GPU-{number:08d}-x") for number in range(16))))
    assert page.count("GPU-000000") == 16
    record = _job(make_gpu())
    devices = [
        record.gpu.devices[0].model_copy(update={"uuid": f"GPU-{number:08d}"})
        for number in range(40)
    ]
    wide = record.model_copy(
        update={"gpu": record.gpu.model_copy(update={"devices": devices, "num_devices": 40})}
    )
    assert "24 more" in _page(wide)


def test_simulated_devices_are_called_so() -> None:
    """On the page, too."""
    assert "GPUs (simulated)" in _page(_job(make_gpu(is_simulated=True)))
    assert "simulated" not in _page(_job(make_gpu()))

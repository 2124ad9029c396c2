"""Mixed precision: what is chosen on which hardware, and that it works on a CPU."""

from __future__ import annotations

import pytest
import torch

from costlens.errors import ConfigError
from costlens.protect.precision import (
    Format,
    Hardware,
    PrecisionChoice,
    choose_precision,
    look_at_hardware,
    make_autocast,
    make_scaler,
)

V100, T4, A100 = Hardware("cuda", (7, 0)), Hardware("cuda", (7, 5)), Hardware("cuda", (8, 0))
P100, UNKNOWN = Hardware("cuda", (6, 0)), Hardware("cuda")
CPU, AMX, MPS = Hardware("cpu"), Hardware("cpu", has_fast_bf16=True), Hardware("mps")


@pytest.mark.parametrize(
    ("hardware", "effective", "needs_scaler"),
    [
        *((A100, "bf16", False), (Hardware("cuda", (9, 0)), "bf16", False), (AMX, "bf16", False)),
        *((V100, "fp16", True), (T4, "fp16", True)),
        *((P100, "fp32", False), (CPU, "fp32", False), (MPS, "fp32", False)),
        (UNKNOWN, "fp32", False),
    ],
)
def test_auto_takes_what_the_hardware_computes_in(
    hardware: Hardware, effective: Format, needs_scaler: bool
) -> None:
    """C072: bf16 where it is real, fp16 where bf16 is emulated, else fp32; and it says why."""
    choice = choose_precision("auto", hardware)
    assert (choice.effective, choice.needs_scaler) == (effective, needs_scaler)
    assert choice.reason


def test_off_changes_nothing() -> None:
    """Without the opt-in there is no choice."""
    assert choose_precision("off", A100).effective is None


def test_what_the_training_has_chosen_stays() -> None:
    """C072: an explicit choice is not overridden, and the record says so."""
    choice = choose_precision("auto", A100, explicit="16-mixed")
    assert choice == PrecisionChoice("auto", None, "the training has chosen 16-mixed itself")


@pytest.mark.parametrize("earlier", ["bf16", "fp16", "fp32"])
def test_a_resumed_run_keeps_its_precision(earlier: Format) -> None:
    """A better GPU does not change what the run computes in."""
    assert choose_precision("auto", A100, earlier=earlier).effective == earlier


def test_a_resumed_run_changes_where_the_hardware_cannot() -> None:
    """And says what it was before."""
    choice = choose_precision("auto", V100, earlier="bf16")
    assert choice.effective == "fp16"
    assert "began in bf16" in choice.reason


@pytest.mark.parametrize(("hardware", "wanted"), [(V100, "bf16"), (P100, "fp16"), (MPS, "fp16")])
def test_a_demand_that_would_be_emulated_is_refused(hardware: Hardware, wanted: Format) -> None:
    """The error names the value, the variable and the way out."""
    with pytest.raises(ConfigError, match=f"{wanted}.*COSTLENS_PRECISION.*auto"):
        choose_precision(wanted, hardware)


def test_looking_initialises_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """C080: a device that nobody has initialised stays so, and its capability unknown."""

    def refuse(*_: object) -> None:
        pytest.fail("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    monkeypatch.setattr(torch.cuda, "get_device_capability", refuse)
    assert look_at_hardware(torch.device("cuda", 0)) == UNKNOWN
    assert look_at_hardware(torch.device("cpu")).kind == "cpu"


def train(choice: PrecisionChoice, *, infinite_at: int | None = None) -> tuple[int, list[float]]:
    """Train five steps on the CPU; return the real ones and the scales after each."""
    torch.manual_seed(1)
    device, model = torch.device("cpu"), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler, num_real, scales = make_scaler(choice, device), 0, []

    def count(*_: object) -> None:
        nonlocal num_real
        num_real += 1

    handle = optimizer.register_step_post_hook(count)
    for number in range(5):
        with make_autocast(choice, device):
            output = model(torch.ones(2, 4))
        expected = {"bf16": torch.bfloat16, "fp16": torch.float16}
        assert output.dtype is expected.get(choice.effective or "", torch.float32)
        loss = output.float().mean() * (float("inf") if number == infinite_at else 0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    handle.remove()
    return num_real, scales


@pytest.mark.parametrize("wanted", ["off", "fp32", "bf16", "fp16"])
def test_the_same_loop_trains_in_every_format(wanted: Format) -> None:
    """One loop with autocast and scaler is right for all of them; on a CPU, too."""
    num_real, _ = train(choose_precision(wanted, CPU))
    assert num_real == 5


def test_an_overflow_is_skipped_and_halves_the_scale() -> None:
    """C071: an infinite gradient in the third of five steps: four real ones, one halving."""
    num_real, scales = train(choose_precision("fp16", CPU), infinite_at=2)
    assert num_real == 4
    assert scales == [65_536.0, 65_536.0, 32_768.0, 32_768.0, 32_768.0]

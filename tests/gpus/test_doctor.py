"""``costlens doctor`` and the GPUs: the stand-in driver under the real nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from costlens.cli.demo.fake_gpus.stand_in import StandIn
from costlens.cli.doctor.answer import Answer, Status, worst
from costlens.cli.doctor.gpus import check_gpus
from costlens.cli.doctor.precision import check_precision
from costlens.cli.doctor.price import check_price
from costlens.config import Config
from costlens.observe.gpu_survey import GpuSurvey, survey_gpus
from tests.gpus.scenarios import make_device, make_node

HOPPER = {"compute_major": 9, "compute_minor": 0}
VOLTA = {"compute_major": 7, "compute_minor": 0, "name": "Tesla V100-SXM2-32GB"}


@pytest.fixture(autouse=True)
def _no_torch_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave torch out: the one that is installed is for CPUs, which is told in its own test."""
    monkeypatch.setattr("costlens.cli.doctor.gpus.find_spec", lambda name: None)
    return


def load(driver: StandIn, *devices: dict[str, Any], **node: Any) -> list[Answer]:
    """Return what is said of a node with these devices."""
    driver.load(make_node(*devices, **node))
    return [*check_gpus(survey_gpus)]


def test_gpus_are_counted_by_model(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are visible, or those that the variable names; the rest is told to be hidden."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (answer,) = load(driver, *(make_device(number) for number in range(4)))
    assert (answer.status, answer.text) == (
        Status.OK,
        "4 × NVIDIA H100 80GB HBM3, driver 570.86.15",
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    (answer,) = load(driver, *(make_device(number) for number in range(4)))
    assert answer.text == "2 × NVIDIA H100 80GB HBM3; 2 are hidden, driver 570.86.15"


def test_an_unknown_device_in_the_variable(
    driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C083: GPUs 0 and 9 of two: 0 is used, and 9 is told."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,9")
    told, usable = load(driver, make_device(0), make_device(1))
    assert told.status is Status.WARNING
    assert "'9' is no device of this node" in told.text
    assert usable.text.startswith("1 × NVIDIA H100")


def test_a_variable_that_hides_all(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training would go on the CPU, and nobody would notice for an hour."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    answers = load(driver, make_device(0))
    assert worst(answer.status for answer in answers) is Status.PROBLEM
    assert "1 GPUs are there and none is visible" in answers[-1].text


def test_a_board_in_mig_mode_without_a_slice(
    driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA cannot use it; how slices are made is told."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answers = load(driver, make_device(0, mig_mode=1))
    uncut = [answer for answer in answers if "MIG mode" in answer.text]
    assert uncut[0].status is Status.PROBLEM
    assert "nvidia-smi mig" in (uncut[0].fix or "")


def test_a_lost_board_is_counted(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that fell off the bus is not just missing."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answers = load(driver, make_device(0), make_device(1, lost=1))
    assert any("1 GPUs are counted and cannot be asked" in answer.text for answer in answers)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (18, "the driver's library and its kernel module are of two versions"),
        (4, "this user may not talk to the driver"),
        (999, "the driver refuses: unknown_error"),
    ],
)
def test_a_driver_that_refuses(driver: StandIn, code: int, told: str) -> None:
    """C079: each refusal is told with what mends it."""
    driver.load(make_node(errors={"nvmlInitWithFlags": code}))
    (answer,) = check_gpus(survey_gpus)
    assert answer.status is Status.PROBLEM
    assert told in answer.text
    assert answer.fix


def test_no_driver_is_no_problem_without_gpus() -> None:
    """C079: a machine for CPUs has no driver; where the kernel has one, a missing library is."""
    (answer,) = check_gpus(lambda: GpuSurvey(reason="no_library"))
    assert answer.status is Status.SKIPPED
    (answer,) = check_gpus(lambda: GpuSurvey(reason="no_library", has_kernel_driver=True))
    assert answer.status is Status.PROBLEM
    assert "NVIDIA_DRIVER_CAPABILITIES" in (answer.fix or "")


def test_precision_follows_the_gpu(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """C072: bf16 on Hopper; fp16 on Volta, where asking for bf16 is a problem before the run."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver.load(make_node(make_device(0, **HOPPER)))
    (answer,) = check_precision(Config(precision="auto"), survey_gpus)
    assert (answer.status, answer.details["auto"]) == (Status.OK, "bf16")
    driver.load(make_node(make_device(0, **VOLTA)))
    (answer,) = check_precision(Config(), survey_gpus)
    assert "COSTLENS_PRECISION=auto would take fp16" in answer.text
    (answer,) = check_precision(Config(precision="bf16"), survey_gpus)
    assert answer.status is Status.PROBLEM
    assert "would only emulate it" in answer.text


def test_the_price_is_that_of_the_gpu(driver: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """C106: one that is set is shown with where it is from; an unset one with what to set."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver.load(make_node(make_device(0)))
    (answer,) = check_price(Config(gpu_hour_price="2.5"), survey_gpus)
    assert answer.text == "2.5 USD per gpu and hour, from argument gpu_hour_price"
    (answer,) = check_price(Config(), survey_gpus)
    assert answer.status is Status.WARNING
    assert "COSTLENS_GPU_HOUR_PRICE" in (answer.fix or "")
    (answer,) = check_price(Config(price_book="/no/such/book.toml"), survey_gpus)
    assert answer.status is Status.PROBLEM

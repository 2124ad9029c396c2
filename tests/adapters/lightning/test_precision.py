"""`COSTLENS_PRECISION` in real Trainers of both packages: what it changes, and what it leaves."""

from __future__ import annotations

import importlib
import json
import math
import pickle
from typing import Any

import pytest
import torch

from costlens.errors import ConfigError
from costlens.lightning import CostLensCallback
from costlens.protect import trainer_precision
from costlens.protect.precision import Hardware
from tests.adapters.lightning.jobs import fit, make_module, make_trainer, record_of, rows

V100, A100 = Hardware("cuda", (7, 0)), Hardware("cuda", (8, 0))


@pytest.fixture
def on_hardware(monkeypatch):
    """Return a function that lets the CPU pass for other hardware."""

    def pretend(hardware: Hardware) -> None:
        monkeypatch.setattr(trainer_precision, "look_at_hardware", lambda _: hardware)

    return pretend


def overflow_in_the_third(loss: torch.Tensor, at: int) -> torch.Tensor:
    """Return a loss that no scale of fp16 makes overflow, but for an infinite one."""
    return loss.float() * (math.inf if at == 2 else 1e-4)


def train(pl: Any, *callbacks: Any, num: int = 12, **options: Any) -> tuple[list[float], set[Any]]:
    """Return the losses of a training, and the types that its layer computed."""
    losses, types = [], set()
    torch.manual_seed(3)
    module = make_module(pl, step=lambda loss, _: losses.append(loss.item()))
    module.layers[0].register_forward_hook(lambda _m, _i, output: types.add(output.dtype))
    make_trainer(pl, *callbacks, max_epochs=1, **options).fit(module, rows(num, 2))
    return losses, types


def test_it_computes_what_lightnings_own_flag_does(each_pl, monkeypatch) -> None:
    """Losses are bitwise those of `precision="bf16-mixed"`, and those of fp32 without it."""
    monkeypatch.setenv("COSTLENS_PRECISION", "bf16")
    callback = CostLensCallback("bf16")
    ours = train(each_pl, callback)
    part = record_of(callback).precision
    assert ours == train(each_pl, precision="bf16-mixed")
    assert ours[1] == {torch.bfloat16}
    assert (part.requested, part.effective, part.loss_scale) == ("bf16", "bf16", None)
    assert "COSTLENS_PRECISION asks" in part.reason
    monkeypatch.delenv("COSTLENS_PRECISION")
    assert train(each_pl, CostLensCallback("off")) == train(each_pl)


@pytest.mark.parametrize(
    ("hardware", "flag", "expected"),
    [
        (A100, "bf16-mixed", torch.bfloat16),
        (V100, "16-mixed", torch.float16),
        (Hardware("cpu"), "32-true", torch.float32),
    ],
    ids=["8.0", "7.0", "cpu"],
)
def test_auto_takes_what_the_hardware_has(each_pl, on_hardware, hardware, flag, expected) -> None:
    """C072: bf16, fp16 with a scaler, fp32; the Trainer says so itself, and the reason is kept."""
    on_hardware(hardware)
    callback = CostLensCallback("auto", precision="auto")
    module = make_module(each_pl)
    types = set()
    module.layers[0].register_forward_hook(lambda _m, _i, output: types.add(output.dtype))
    trainer = make_trainer(each_pl, callback, max_epochs=1)
    trainer.fit(module, rows(4, 2))
    assert (trainer.precision, types) == (flag, {expected})
    assert (trainer.precision_plugin.scaler is not None if flag == "16-mixed" else True) is True
    part = record_of(callback).precision
    assert part.requested == "auto"
    assert part.effective == {"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "fp32"}[flag]
    assert part.reason


@pytest.mark.parametrize("earlier", ["fp16", "fp32"])
def test_a_resumed_run_keeps_its_precision(pl, on_hardware, earlier) -> None:
    """Better hardware changes nothing of a run that has begun in another format."""
    on_hardware(A100)
    settled = trainer_precision.TrainerPrecision("auto", "COSTLENS_PRECISION", earlier)
    part = settled.settle(make_trainer(pl))
    assert (part.effective, part.reason) == (earlier, f"the run began in {earlier}")


@pytest.mark.parametrize(
    ("chosen", "effective"),
    [("bf16-mixed", "bf16"), ("64-true", "64-true"), ("bf16-true", "bf16-true")],
)
def test_what_the_user_chose_stays(each_pl, on_hardware, chosen, effective) -> None:
    """C072: an explicit precision is untouched, also by a demand; the record says whose it is."""
    on_hardware(A100)
    callback = CostLensCallback("explicit", precision="fp16")
    trainer = make_trainer(each_pl, callback, max_epochs=1, precision=chosen)
    plugin = trainer.precision_plugin
    module = make_module(each_pl)
    if chosen == "64-true":
        module.loss = lambda batch: module.layers[0](batch.double()).square().mean()
    if chosen == "bf16-true":
        module.loss = lambda batch: module.layers[0](batch.bfloat16()).square().mean()
    trainer.fit(module, rows(4, 2))
    assert trainer.precision_plugin is plugin
    part = record_of(callback).precision
    assert (part.requested, part.effective) == ("fp16", effective)
    assert part.reason == f"the training has chosen {chosen} itself"


def test_a_plugin_of_the_users_stays(pl, on_hardware) -> None:
    """A precision plugin that looks like the default by its flag alone is somebody's own."""
    on_hardware(A100)
    base = importlib.import_module(f"{pl.__name__}.plugins.precision").Precision
    own = type("Own", (base,), {})()
    callback = CostLensCallback("own", precision="auto")
    trainer = make_trainer(pl, callback, max_epochs=1, plugins=[own])
    trainer.fit(make_module(pl), rows(4, 2))
    assert trainer.precision_plugin is own
    assert "chosen 32-true itself" in record_of(callback).precision.reason


def test_without_the_opt_in_nothing_changes(each_pl, on_hardware) -> None:
    """Off, the plugin stays; what the training computes in is known all the same."""
    on_hardware(A100)
    callback = CostLensCallback("off")
    trainer = make_trainer(each_pl, callback, max_epochs=1)
    plugin = trainer.precision_plugin
    trainer.fit(make_module(each_pl), rows(4, 2))
    assert trainer.precision_plugin is plugin
    part = record_of(callback).precision
    assert (part.requested, part.effective, part.skipped_steps) == ("off", "fp32", 0)


def test_switched_off_it_changes_nothing(pl, monkeypatch) -> None:
    """`COSTLENS_ENABLED=0` turns the precision off, too."""
    monkeypatch.setenv("COSTLENS_ENABLED", "0")
    assert train(pl, CostLensCallback("disabled", precision="bf16")) == train(pl)


def test_a_strategy_that_converts_weights_is_refused(each_pl, on_hardware) -> None:
    """The error names the strategy, the setting and the way out; the training does not begin."""
    on_hardware(A100)
    strategies = importlib.import_module(f"{each_pl.__name__}.strategies")
    # It inherits from what is served, as the real one does.
    kind = type("DeepSpeedStrategy", (strategies.SingleDeviceStrategy,), {})
    callback = CostLensCallback("refused", precision="auto")
    module = make_module(each_pl, step=lambda *_: pytest.fail("it has begun"))
    trainer = make_trainer(each_pl, callback, max_epochs=1, strategy=kind(torch.device("cpu")))
    with pytest.raises(ConfigError, match=r"argument precision.*DeepSpeedStrategy.*bf16-mixed"):
        trainer.fit(module, rows(4, 2))
    assert record_of(callback).attempt.outcome.value == "failed"


@pytest.mark.parametrize(
    ("name", "is_served"),
    [
        *(("SingleDeviceStrategy", True), ("DDPStrategy", True), ("FSDPStrategy", False)),
        *(("DeepSpeedStrategy", False), ("SingleDeviceXLAStrategy", False)),
    ],
)
def test_one_device_and_ddp_are_served(each_pl, name, is_served) -> None:
    """Of Lightning's own strategies those that take a precision plugin at any time."""
    strategies = importlib.import_module(f"{each_pl.__name__}.strategies")
    assert trainer_precision.serves(getattr(strategies, name)) is is_served


def test_a_demand_that_cannot_be_met_is_loud(pl, on_hardware) -> None:
    """Mixed precision was asked for: an error before the first step, not a slow training."""
    on_hardware(V100)
    callback = CostLensCallback("loud", precision="bf16")
    with pytest.raises(ConfigError, match=r"7\.0 would only emulate"):
        make_trainer(pl, callback, max_epochs=1).fit(make_module(pl), rows(4, 2))


def test_an_overflow_is_counted_priced_and_seen_in_the_scale(each_pl, monkeypatch) -> None:
    """C071: the third of five steps overflows: 4 updates, 1 skipped, the scale halves once."""
    monkeypatch.setenv("COSTLENS_GPU_HOUR_PRICE", "3.60")
    module = make_module(each_pl, step=overflow_in_the_third)
    record = fit(each_pl, module, rows(5), max_epochs=1, watch={"precision": "fp16"})
    progress, part = record.progress, record.precision
    assert (progress.optimizer_steps, progress.skipped_steps, progress.micro_batches) == (4, 1, 5)
    assert (part.requested, part.effective, part.skipped_steps) == ("fp16", "fp16", 1)
    assert (part.loss_scale, part.min_loss_scale) == (32_768.0, 32_768.0)
    # Of four timed iterations (the first one is start-up's) and five steps.
    assert part.skipped_s == pytest.approx(record.iteration_time.sum_ns / 1e9 / 5)
    assert "loss" in record.quality
    assert "costlens.loss_scale" not in record.quality


def test_a_fused_optimizer_skips_by_itself(each_pl) -> None:
    """C071: it is called each time; the scaler's flag tells which steps were none."""
    module = make_module(each_pl, step=overflow_in_the_third)
    module.configure_optimizers = lambda: torch.optim.Adam(module.parameters(), fused=True)
    record = fit(each_pl, module, rows(5), max_epochs=1, watch={"precision": "fp16"})
    assert (record.progress.optimizer_steps, record.precision.skipped_steps) == (4, 1)
    assert record.precision.loss_scale == 32_768.0


def test_the_scaler_goes_through_a_checkpoint(each_pl, tmp_path) -> None:
    """What fp16 has learnt of its scale is saved and resumed as with Lightning's own flag."""
    path = tmp_path / "last.ckpt"
    infinite = make_module(each_pl, step=overflow_in_the_third)
    trainer = make_trainer(each_pl, CostLensCallback("one", precision="fp16"), max_epochs=1)
    trainer.fit(infinite, rows(5))
    trainer.save_checkpoint(path)
    saved = trainer.precision_plugin.scaler.state_dict()
    assert saved["scale"] == 32_768.0
    again = make_trainer(each_pl, CostLensCallback("two", precision="fp16"), max_epochs=1)
    again.fit(make_module(each_pl), rows(5), ckpt_path=path)  # nothing is left to train
    assert again.precision_plugin.scaler.state_dict() == saved


def test_a_second_fit_goes_on_with_the_scaler(each_pl) -> None:
    """The Trainer's plugin is then ours: no choice of the user's, and none that is made anew."""
    callback = CostLensCallback("twice", precision="fp16")
    module = make_module(each_pl, step=overflow_in_the_third)
    trainer = make_trainer(each_pl, callback, max_epochs=1)
    trainer.fit(module, rows(5))
    plugin = trainer.precision_plugin
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, rows(5))
    trainer.validate(module, rows(2), verbose=False)
    assert trainer.precision_plugin is plugin
    part = record_of(callback).precision
    assert (part.effective, part.skipped_steps) == ("fp16", 2)
    assert part.loss_scale == 16_384.0


def test_a_copy_asks_anew(pl) -> None:
    """A copy of the callback knows the setting, and nothing of the plugin."""
    callback = CostLensCallback("copied", precision="bf16")
    train(pl, callback)
    copy = pickle.loads(pickle.dumps(callback))
    assert "_precision" in vars(copy)
    assert vars(copy)["_precision"] is None
    assert train(pl, copy)[1] == {torch.bfloat16}


def test_the_callback_that_does_nothing_chooses_nothing(pl, capsys) -> None:
    """Of two callbacks of one name the second is inert, whatever precision it was given."""
    first = CostLensCallback("one")
    second = CostLensCallback("one", precision="bf16")
    assert train(pl, first, second)[1] == {torch.float32}
    assert json.loads(capsys.readouterr().err.splitlines()[0])["event"].endswith("duplicate")


def test_a_fit_that_resumes_asks_the_checkpoint_what_it_computed_in(
    pl, on_hardware, tmp_path
) -> None:
    """Began on hardware for fp16, it goes on in fp16 where there is bf16, unless that cannot be."""

    def attempt(hardware: Hardware, epochs: int) -> tuple[str, str]:
        on_hardware(hardware)
        callback = CostLensCallback(
            "kept", precision="auto", checkpoint_url=str(tmp_path / "checkpoints")
        )
        make_trainer(pl, callback, max_epochs=epochs).fit(make_module(pl), rows(4, 2))
        record = record_of(callback)
        return record.precision.effective, record.precision.reason

    assert attempt(V100, 1)[0] == "fp16"
    assert attempt(A100, 2) == ("fp16", "the run began in fp16")
    assert attempt(Hardware("cpu"), 3)[0] == "fp32"

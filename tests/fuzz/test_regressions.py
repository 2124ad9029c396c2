"""What random trainings have found in the Lightning door, each as its smallest plan."""

from __future__ import annotations

from tests.fuzz.check import find_problems
from tests.fuzz.plan import Plan


def holds(plan: Plan) -> bool:
    """Return whether a plan shows no problem; what is wrong is printed."""
    problems = find_problems(plan)
    print(plan.describe(), *problems, sep="\n    ")
    return not problems


def test_a_stop_inside_the_last_epoch_is_early() -> None:
    """Stopped in the first of 5 batches of the last epoch, a fit has not reached its limit."""
    assert holds(Plan(max_epochs=1, stops=("first.on_train_batch_start", 1)))
    assert holds(Plan(max_epochs=1, train_loader="unsized", early_stopping="val_loss"))


def test_a_stop_in_the_last_batch_of_the_last_epoch_is_no_early_one() -> None:
    """Whoever asks to stop where the fit ends anyway stops nothing."""
    assert holds(Plan(max_epochs=1, stops=("first.on_train_batch_start", 5)))
    assert holds(
        Plan(
            max_epochs=1,
            limit_train_batches=2,
            train_loader="unsized",
            stops=("first.on_train_batch_end", 2),
        )
    )


def test_the_last_batch_of_a_stream_is_the_last() -> None:
    """Where no length says so, that there is no further batch does."""
    stops = ("last.on_train_batch_end", 5)
    assert holds(Plan(max_epochs=1, train_loader="unsized", stops=stops))


def test_a_step_that_calls_the_one_it_inherits_is_one_step() -> None:
    """Torch calls hooks at every level of such an optimizer."""
    assert holds(Plan(optimization="subclass"))
    assert holds(Plan(optimization="subclass", precision="scaler", infinite_at=2))


def test_a_step_that_failed_does_not_hide_the_next() -> None:
    """A module may catch what its closure raised and make the step in another way."""
    assert holds(Plan(optimization="manual recovering", max_epochs=3))
    assert holds(Plan(optimization="manual recovering", precision="scaler", infinite_at=2))


def test_a_fused_optimizer_skips_by_itself() -> None:
    """Its step returns as usual where the scaler's flag told it to leave the update out."""
    assert holds(Plan(optimization="fused", precision="scaler", infinite_at=2))


def test_only_the_scaler_skips_where_there_is_one() -> None:
    """An update that the module left out, or a step without a loss, is no skipped step."""
    assert holds(Plan(optimization="left out", precision="scaler"))
    assert holds(Plan(output="sometimes none", precision="scaler"))
    assert holds(Plan(optimization="manual odd", precision="scaler", infinite_at=2))


def test_the_loss_is_that_of_the_module_whatever_changes_the_accumulation() -> None:
    """A schedule changes it after our hook; a fit that goes on inside an epoch starts none."""
    assert holds(Plan(scheduled_accumulation=True))
    assert holds(
        Plan(
            calls=("fit", "renew"),
            max_epochs=3,
            accumulate=2,
            saves=("last.on_train_batch_end", 2),
        )
    )


def test_training_steps_of_an_abandoned_batch_belong_to_no_iteration() -> None:
    """LBFGS asks for several batches a step; where they end inside one, that step is not made."""
    assert holds(Plan(takes_iterator="train", optimization="lbfgs"))


def test_a_training_step_that_did_not_return_is_no_micro_batch() -> None:
    """Lightning takes a StopIteration of a manual training step for its end."""
    assert holds(
        Plan(optimization="manual", fails=("module.training_step", 3), error="StopIteration")
    )


def test_a_bracket_that_the_users_profiler_cannot_start_is_stopped_as_well() -> None:
    """Lightning's own bracket does so, and a profiler may rely on it."""
    assert holds(Plan(profiler="own", fails=("profiler.start", 5)))


def test_an_error_passes_a_profiler_that_brackets_in_its_own_way() -> None:
    """Neither its context manager nor ours around it takes the error for its own."""
    fails = ("module.training_step", 2)
    assert holds(Plan(profiler="own profile", fails=fails))
    assert holds(Plan(profiler="own profile", fails=fails, error="StopIteration"))


def test_looking_at_logged_values_keeps_none_of_them() -> None:
    """A batch that fails behind our hook leaves the callback metrics of the batch before."""
    assert holds(Plan(window_s=0.01, fails=("first.on_train_batch_end", 5)))


def test_what_follows_an_evaluation_is_shutdown() -> None:
    """Alone or after a fit, what other callbacks do at the end is no start-up."""
    assert holds(Plan(calls=("test",), place=1))
    assert holds(Plan(calls=("fit", "validate", "test", "predict"), place=1))


def test_evaluating_with_another_trainer_keeps_the_step_that_was_reached() -> None:
    """Its own count of steps is 0, for it trained nothing."""
    assert holds(Plan(calls=("fit", "retest")))


def test_a_total_that_nobody_knows_is_absent() -> None:
    """Of 8 steps and one epoch the epoch may end first, and nobody knows its steps before."""
    assert holds(Plan(max_epochs=1, max_steps=8, optimization="manual"))
    assert holds(Plan(max_epochs=1, max_steps=8, scheduled_accumulation=True))
    assert holds(Plan(max_epochs=1, max_steps=8, train_loader="unsized"))


def test_two_watchers_give_the_scaler_back() -> None:
    """Whichever of two callbacks ends first, nothing of ours stays on what both watched."""
    assert holds(Plan(has_twin=True, precision="scaler", calls=("fit", "resume")))


def test_a_fit_that_goes_on_past_its_limit_has_no_total() -> None:
    """Lightning makes 4 steps more when a fit with validations within epochs is called again."""
    assert holds(Plan(calls=("fit", "fit"), val_check_interval=0.34, checkpointing=True))

"""A watched plain loop books every planted duration to its phase, to the nanosecond."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import DataLoader

from tests.adapters.plain.timed import TimedNet, TimedSet, TimedSGD


def _loader(rig, length=8, **settings):
    return DataLoader(TimedSet(rig.clock, length), batch_size=2, **settings)


def test_a_loop_that_only_gives_its_objects_to_watch(rig):
    """Model, optimizer and loader alone, the loop unchanged: waits, compute and counts are there.

    4 batches of two samples; the first iteration is start-up.
    """
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for _ in range(2):
        for batch in loader:
            rig.train(batch)
    # A fetch is 10 ms; the one that finds the end takes no time.
    assert rig.phases_ms() == {"data_wait": 70, "forward": 140, "backward": 210, "optimizer": 70}
    record = rig.finish()
    progress = record.progress
    assert (progress.iterations, progress.micro_batches, progress.optimizer_steps) == (8, 8, 8)
    assert progress.samples is None
    assert record.iteration_time.count == 7
    assert record.iteration_time.median_s == pytest.approx(0.07, rel=0.01)
    assert record.startup.first_iteration_s == pytest.approx(0.07)


@pytest.mark.parametrize("ways", ["batches", "batches+loader", "all"])
def test_ways_that_coexist_count_once(rig, ways):
    """batches(), watch(loader=) and iteration() together give what each gives alone."""
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader if ways != "batches" else None)
    for _ in range(2):
        for batch in rig.run.batches(loader):
            if ways == "all":
                with rig.run.iteration(samples=len(batch)):
                    rig.train(batch)
            else:
                rig.train(batch)
    assert rig.phases_ms() == {"data_wait": 70, "forward": 140, "backward": 210, "optimizer": 70}
    record = rig.finish()
    assert (record.progress.iterations, record.progress.micro_batches) == (8, 8)
    assert record.progress.optimizer_steps == 8
    assert record.progress.samples == (16 if ways == "all" else None)


def test_what_nobody_splits_is_compute_in_an_iteration_and_other_after_the_step(rig):
    """Loss and clipping are compute; logging after the step is the loop's own bookkeeping."""
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for batch in loader:
        rig.clock.advance(0.001)  # augmentation
        loss = rig.net(batch).sum()
        rig.clock.advance(0.002)  # loss
        loss.backward()
        rig.clock.advance(0.004)  # clipping
        rig.optimizer.step()
        rig.clock.advance(0.008)  # logging
    phases = rig.phases_ms()
    assert phases["compute"] == pytest.approx(3 * 7)
    assert phases["other"] == pytest.approx(3 * 8)


def test_validation_is_validation_with_its_own_fetches(rig):
    """A watched validation loader under model.eval(): fetch, forward and metrics are validation."""
    train, validation = _loader(rig), _loader(rig, length=4)
    rig.run.watch(rig.net, rig.optimizer, loader=train)
    for batch in train:
        rig.train(batch)
    before = rig.phases_ms()
    rig.net.eval()
    with torch.no_grad():
        for batch in rig.run.batches(validation):
            rig.net(batch)
            rig.clock.advance(0.007)  # a metric
    rig.net.train()
    for batch in train:
        rig.train(batch)
    phases = rig.phases_ms()
    assert phases["validation"] == pytest.approx(2 * (10 + 20 + 7))
    assert phases["data_wait"] - before["data_wait"] == 40
    record = rig.finish()
    assert record.progress.validation_batches == 2
    assert record.progress.iterations == 8
    # The evaluation between the fourth and the fifth iteration is in neither of them.
    assert record.iteration_time.count == 7
    assert record.iteration_time.sum_ns == 7 * 70_000_000


def test_an_unwatched_validation_loop_still_shows_its_forward(rig):
    """Only the model is watched: its forwards in eval mode are validation."""
    rig.run.watch(rig.net, rig.optimizer)
    for _ in range(3):
        rig.train(torch.ones(2, 4))
    rig.net.eval()
    with torch.no_grad():
        rig.net(torch.ones(2, 4))
    assert rig.phases_ms()["validation"] == 20


def test_a_model_that_trains_in_eval_mode_trains(rig):
    """Frozen statistics: a model kept in eval mode is trained; its passes are not validation."""
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    rig.net.eval()
    for batch in loader:
        rig.train(batch)
    with torch.no_grad():
        rig.net(torch.ones(2, 4))
    phases = rig.phases_ms()
    assert phases["forward"] == 60
    # Known only from the first step on; later, what runs without gradients is validation.
    assert phases["validation"] == (10 + 20) + 20
    assert rig.finish().progress.iterations == 4


def test_adversarial_gradients_in_validation_are_no_training(rig):
    """A backward pass in eval mode without a step makes no iteration."""
    loader, validation = _loader(rig), _loader(rig, length=4)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for _ in range(2):
        for batch in loader:
            rig.train(batch)
        rig.net.eval()
        for batch in rig.run.batches(validation):
            rig.net(batch.requires_grad_()).sum().backward()
        rig.net.train()
    assert rig.phases_ms()["validation"] == pytest.approx(2 * 2 * (10 + 20 + 30))
    assert rig.finish().progress.iterations == 8


def test_a_loop_without_a_loader_counts_forward_and_backward_pairs(rig):
    """A hand-made get_batch(): an iteration ends where the next pass begins; accumulation by 2."""
    rig.run.watch(rig.net, rig.optimizer)
    for step in range(6):
        rig.clock.advance(0.005)  # get_batch
        rig.net(torch.ones(2, 4)).sum().backward()
        if step % 2:
            rig.optimizer.step()
    record = rig.finish()
    assert (record.progress.iterations, record.progress.optimizer_steps) == (6, 3)
    assert rig.seconds(record)["backward"] == pytest.approx(5 * 0.03)


def test_accumulation_counts_micro_batches_and_steps(rig):
    """Four micro-batches a step: iterations and micro-batches 8, steps 2."""
    loader = _loader(rig, length=16)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for number, batch in enumerate(loader, start=1):
        rig.net(batch).sum().backward()
        if number % 4 == 0:
            rig.optimizer.step()
    progress = rig.finish().progress
    assert (progress.iterations, progress.micro_batches, progress.optimizer_steps) == (8, 8, 2)


def test_an_iteration_of_several_fetches_is_one(rig):
    """run.iteration() around four fetches: one iteration, and its fetches are its data wait."""
    batches = iter(rig.run.batches(_loader(rig, length=16)))
    rig.run.watch(rig.net, rig.optimizer)
    for _ in range(2):
        with rig.run.iteration(micro_batches=4):
            for _ in range(4):
                rig.net(next(batches)).sum().backward()
            rig.optimizer.step()
    assert rig.phases_ms()["data_wait"] == 40
    progress = rig.finish().progress
    assert (progress.iterations, progress.micro_batches, progress.optimizer_steps) == (2, 8, 2)


def test_a_closure_runs_inside_the_step_and_keeps_its_own_phases(rig):
    """LBFGS style: forward and backward within the optimizer are theirs, the rest is its own."""
    rig.run.watch(rig.net, rig.optimizer)

    def closure():
        rig.optimizer.zero_grad()
        loss = rig.net(torch.ones(2, 4)).sum()
        rig.clock.advance(0.002)
        loss.backward()
        return loss

    for _ in range(3):
        with rig.run.iteration():
            rig.optimizer.step(closure)
    assert rig.phases_ms() == {"forward": 40, "backward": 60, "optimizer": 24}
    assert rig.counters.optimizer_steps == 3


def test_a_real_lbfgs_step_is_one_step(rig):
    """LBFGS of torch calls its closure several times within one step."""
    optimizer = torch.optim.LBFGS(rig.net.parameters(), max_iter=3)
    rig.run.watch(rig.net, optimizer)

    def closure():
        optimizer.zero_grad()
        loss = rig.net(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        with rig.run.iteration():
            optimizer.step(closure)
    phases = rig.phases_ms()
    assert phases["backward"] == pytest.approx(1.5 * phases["forward"])
    assert rig.counters.optimizer_steps == 2


def test_several_models_and_optimizers(rig):
    """A pair of networks with an optimizer each: every update counts, every pass is seen."""
    other = TimedNet(rig.clock)
    second = TimedSGD(other.parameters(), rig.clock)
    rig.run.watch(rig.net, rig.optimizer)
    rig.run.watch(other, second)
    for batch in rig.run.batches(_loader(rig)):
        rig.train(batch)
        second.zero_grad()
        (rig.net(batch).sum() + other(batch).sum()).backward()
        second.step()
    phases = rig.phases_ms()
    assert phases["optimizer"] == 3 * 20
    assert phases["forward"] == 3 * 60
    assert phases["backward"] == 3 * 90
    progress = rig.finish().progress
    assert (progress.iterations, progress.optimizer_steps) == (4, 8)


def test_watching_again_changes_nothing(rig):
    """A notebook cell that is run twice does not count twice."""
    loader = _loader(rig)
    for _ in range(3):
        rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for batch in loader:
        rig.train(batch)
    progress = rig.finish().progress
    assert (progress.iterations, progress.optimizer_steps) == (4, 4)


def test_a_transfer_is_timed_apart_from_the_fetch(rig):
    """batches(device=): the fetch ends before the batch is moved."""

    class Batch:
        def to(self, device):
            rig.clock.advance(0.003)
            return torch.ones(2, 4, device=device)

    rig.run.watch(rig.net, rig.optimizer)
    for batch in rig.run.batches([Batch()] * 4, device="cpu"):
        rig.train(batch)
    assert rig.phases_ms()["transfer"] == pytest.approx(9)


def test_leaving_a_loop_early_keeps_the_last_iteration_and_the_balance(rig):
    """break, islice and zip: nothing is left open, every trained batch counts once."""
    loader = _loader(rig)
    watched = rig.run.batches(loader)
    rig.run.watch(rig.net, rig.optimizer)
    for batch in watched:
        rig.train(batch)
        break
    for batch in itertools.islice(watched, 2):
        rig.train(batch)
    for batch, _other in zip(watched, rig.run.batches(_loader(rig)), strict=True):
        rig.train(batch)
    assert rig.timeline.depth == 0
    assert "restore" not in rig.phases_ms()
    # islice stopped before asking for a third batch, zip asked both loaders each time.
    assert rig.phases_ms()["data_wait"] == pytest.approx(2 * 10 + 4 * 20)
    assert rig.finish().progress.iterations == 7


def test_a_nested_loop_is_a_wait_inside_its_own_iterations(rig):
    """An inner loader walked within an outer pass: both wait for data; the passes are counted."""
    outer, inner = rig.run.batches(_loader(rig, 4)), rig.run.batches(_loader(rig, 4))
    rig.run.watch(rig.net, rig.optimizer)
    for _ in outer:
        for batch in inner:
            rig.train(batch)
    assert rig.timeline.depth == 0
    assert rig.finish().progress.iterations == 4


def test_an_error_in_the_dataset_reaches_the_user_and_closes_the_wait(rig):
    """A broken sample raises where it did before, and the next pass is booked as ever."""

    class Broken(TimedSet):
        def __getitem__(self, index):
            if index == 3:
                rig.clock.advance(0.5)
                raise KeyError("sample 3")
            return super().__getitem__(index)

    loader = DataLoader(Broken(rig.clock), batch_size=2)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    batches = iter(loader)
    rig.train(next(batches))
    with pytest.raises(KeyError, match="sample 3"):
        next(batches)
    assert rig.timeline.depth == 0
    for batch in rig.run.batches(_loader(rig)):
        rig.train(batch)
    phases = rig.phases_ms()
    assert phases["data_wait"] == pytest.approx(505 + 40)
    assert rig.finish().progress.iterations == 5


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
@pytest.mark.parametrize("is_explicit", [False, True])
def test_an_error_that_the_user_survives_leaves_nothing_open(rig, where, is_explicit):
    """Out of memory in one pass, caught, and on with the next: phases are as in a quiet run."""
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)

    def fail():
        rig.clock.advance(0.001)
        raise MemoryError(where)

    def attempt(batch, *, is_bad):
        output = rig.net(batch if not (is_bad and where == "forward") else "no tensor")
        if is_bad and where == "backward":
            output.register_hook(lambda _: fail())
        rig.optimizer.zero_grad()
        output.sum().backward()
        if is_bad and where == "step":
            rig.optimizer.step(fail)
        else:
            rig.optimizer.step()

    for number, batch in enumerate(loader):
        try:
            if is_explicit:
                with rig.run.iteration():
                    attempt(batch, is_bad=number == 2)
            else:
                attempt(batch, is_bad=number == 2)
        except (MemoryError, TypeError):
            pass
    assert rig.timeline.depth == 0
    before = rig.phases_ms()
    for batch in loader:
        if is_explicit:
            with rig.run.iteration():
                rig.train(batch)
        else:
            rig.train(batch)
    phases = {name: value - before.get(name, 0) for name, value in rig.phases_ms().items()}
    phases = {name: round(value, 6) for name, value in phases.items() if round(value, 6)}
    assert phases == {"data_wait": 40, "forward": 80, "backward": 120, "optimizer": 40}
    assert rig.timeline.depth == 0


def test_an_optimizer_that_steps_inside_the_backward_pass(rig):
    """Parameter by parameter, to save memory: steps are optimizer time, the rest stays backward."""
    own = {
        parameter: TimedSGD([parameter], rig.clock, step_s=0.001)
        for parameter in rig.net.parameters()
    }
    rig.run.watch(rig.net, *own.values())
    for parameter in rig.net.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: own[parameter].step())
    for _ in range(3):
        with rig.run.iteration():
            rig.net(torch.ones(2, 4)).sum().backward()
    assert rig.phases_ms() == {"forward": 40, "backward": 60, "optimizer": 8}
    assert rig.counters.optimizer_steps == 3 * 4


def test_a_model_that_is_gone_turns_no_fetch_into_validation(rig):
    """The watched model was deleted; another, unwatched one is trained in iterations."""
    model = torch.nn.Linear(1, 1)
    rig.run.watch(model)
    del model
    for _ in rig.run.batches(_loader(rig)):
        with rig.run.iteration():
            rig.clock.advance(0.02)
    assert rig.phases_ms() == {"data_wait": 30, "compute": 60}


def test_a_run_that_goes_on_counts_what_is_watched_anew(rig):
    """finish() and open() again, as for a second fit: old loaders and hooks do not report twice."""
    loader = _loader(rig)
    old = iter(rig.run.batches(loader))
    for _ in range(2):
        rig.run.watch(rig.net, rig.optimizer)
        for batch in rig.run.batches(loader):
            rig.train(batch)
        rig.run.finish()
        rig.clock.advance(1.0)
        rig.run.open()
        next(old)
    record = rig.finish()
    assert (record.progress.iterations, record.progress.optimizer_steps) == (8, 8)
    assert record.time_ns["idle"] == 2_000_000_000


def test_finishing_takes_every_hook_off(rig):
    """After the run the user's objects are as they were; training them counts nothing."""
    loader = _loader(rig)
    scaler = torch.amp.GradScaler("cpu")
    rig.run.watch(rig.net, rig.optimizer, loader=loader, scaler=scaler)
    for batch in loader:
        rig.train(batch)
    rig.finish()
    assert not rig.net._forward_hooks
    assert not rig.net._forward_pre_hooks
    assert not any(p._post_accumulate_grad_hooks for p in rig.net.parameters())
    assert not rig.optimizer._optimizer_step_pre_hooks
    assert not rig.optimizer._optimizer_step_post_hooks
    assert "_get_iterator" not in vars(loader)
    assert "step" not in vars(scaler)
    steps = rig.counters.optimizer_steps
    for batch in loader:
        rig.train(batch)
    assert rig.counters.optimizer_steps == steps


def test_an_iteration_that_was_under_way_when_the_run_failed_is_not_counted(rig):
    """The run ends in a forward pass: three iterations are complete, the fourth is not."""
    loader = _loader(rig)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    for number, batch in enumerate(loader):
        if number == 3:
            rig.net(batch)
            break
        rig.train(batch)
    record = rig.finish(error=RuntimeError("out of luck"))
    assert record.progress.iterations == 3


def test_another_thread_is_not_the_training(rig):
    """Prefetching and evaluating in helper threads books nothing on the training's timeline."""
    from concurrent.futures import ThreadPoolExecutor

    rig.run.watch(rig.net, rig.optimizer)
    for batch in rig.run.batches(_loader(rig)):
        rig.train(batch)
    before = rig.phases_ms()

    def elsewhere():
        for batch in rig.run.batches(_loader(rig)):
            rig.train(batch)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(elsewhere).result()
    after = rig.phases_ms()
    before.pop("other", None), after.pop("other", None)
    assert after == before
    assert rig.counters.optimizer_steps == 4

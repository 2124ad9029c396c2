"""The demo's text and the batches made of it."""

from __future__ import annotations

from itertools import islice
from pydoc_data.topics import topics

import pytest
import torch

from costlens.cli.demo.recipe import ACCUMULATION, build_loaders
from costlens.cli.demo.text import corpus


def test_the_text_is_the_same_on_every_call() -> None:
    """Two calls return the same bytes in the same order."""
    assert corpus(129) == corpus(129)


def test_no_sequence_is_longer_than_asked_and_all_can_be_learnt_from() -> None:
    """Every sequence has at least a byte and its successor, and at most `max_bytes`."""
    text = corpus(129)
    lengths = {len(sequence) for sequence in text.train + text.validation}
    assert min(lengths) >= 2
    assert max(lengths) == 129


def test_text_is_split_by_topic_and_nothing_is_lost() -> None:
    """Training and validation text together are all topics, and none is in both."""
    text = corpus(129)
    train, validation = b"".join(text.train), b"".join(text.validation)
    total = sum(len(body.encode()) for body in topics.values())
    lost = total - len(train) - len(validation)
    assert 0 <= lost <= len(topics)  # single bytes left at the end of a topic
    first, second = sorted(topics)[:2]
    assert topics[first].encode()[:100] in validation
    assert topics[second].encode()[:100] in train
    assert topics[second].encode()[:100] not in validation


def test_a_limit_that_leaves_nothing_to_predict_is_refused() -> None:
    """One byte has no successor, and the message says what is allowed."""
    with pytest.raises(ValueError, match="max_bytes must be >= 2, got 1"):
        corpus(1)


def test_batches_hold_padding_that_is_masked_and_never_learnt() -> None:
    """Some but not all positions are padding; there the mask is 0 and the label is left out."""
    batches = list(islice(build_loaders(0, 96)[0], 10))
    mask = torch.cat([batch["attention_mask"] for batch in batches])
    labels = torch.cat([batch["labels"] for batch in batches])
    assert mask.shape == (80, 96)
    assert 0.5 < mask.float().mean().item() < 0.95
    assert torch.equal(labels == -100, mask == 0)


def test_labels_are_the_bytes_that_follow() -> None:
    """Within a sequence the label of a position is the input of the next."""
    batch = next(iter(build_loaders(0, 96)[1]))
    real = batch["attention_mask"][:, 1:].bool()
    assert torch.equal(batch["labels"][:, :-1][real], batch["input_ids"][:, 1:][real])


def test_an_epoch_is_whole_optimizer_steps_of_full_batches() -> None:
    """No accumulation is cut short at the end of an epoch and no batch is smaller than others."""
    loader = build_loaders(0, 96)[0]
    assert len(loader) % ACCUMULATION == 0
    assert {len(batch["input_ids"]) for batch in loader} == {8}


def test_the_order_follows_the_seed_and_leaves_torchs_generator_alone() -> None:
    """Same seed, same order; another seed, another order; the global generator does not move."""
    before = torch.get_rng_state()
    first, again, other = (
        torch.cat([batch["input_ids"] for batch in islice(build_loaders(seed, 96)[0], 3)])
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())

"""What a batch tells about its samples and tokens, without a Trainer."""

from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import pytest
import torch

from costlens.core.recorder import UNKNOWN, Counters
from costlens.observe.trainer.batches import BatchCounter, count_samples


class Pair(NamedTuple):
    """A batch of two members."""

    left: Any
    right: Any


class Values:
    """Notes what would be read later from a device."""

    def __init__(self) -> None:
        self.counts = []

    def add_count(self, name, value, number) -> None:
        self.counts.append((name, value, number))

    def add_metric(self, name, value, number) -> None:
        raise AssertionError("a batch has no metrics")


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.ones(3, 4), 3),
        (torch.tensor(1.0), None),
        ([torch.ones(5), torch.ones(2)], 5),
        ((None, torch.ones(2, 2)), 2),
        (Pair(None, torch.ones(7)), 7),
        ({"label": "text", "image": torch.ones(6, 1)}, 6),
        (UserDict(x=torch.ones(2)), 2),
        ({"a": None, "b": [None, (torch.tensor(1), torch.ones(4))]}, 4),
        ([], None),
        ({}, None),
        (None, None),
        ("text", None),
        (object(), None),
    ],
)
def test_samples_are_the_first_dimension_of_the_first_tensor(batch, samples) -> None:
    """None, text, scalars and unknown objects are passed over; without tensors it is unknown."""
    assert count_samples(batch) == samples


def test_a_batch_that_contains_itself_ends() -> None:
    """A circular batch is unknown, not endless."""
    batch = []
    batch.append(batch)
    assert count_samples(batch) is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.int8, torch.float32, torch.half])
def test_a_mask_of_any_type_is_counted_exactly(dtype) -> None:
    """3000 ones are 3000 tokens, also in half precision, which cannot add beyond 2048."""
    counters = Counters()
    ids = torch.ones(2, 2000, dtype=torch.long)
    mask = torch.zeros(2, 2000, dtype=dtype)
    mask[:, :1500] = 1
    BatchCounter(counters, Values()).count({"input_ids": ids, "attention_mask": mask}, 0)
    assert (counters.samples, counters.slots, counters.tokens) == (2, 4000, 3000)
    assert counters.loss_tokens == UNKNOWN


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.ones(2, 3), "attention_mask": None, "labels": None},
        {"input_ids": torch.ones(2, 3), "attention_mask": torch.ones(2, 1, 3, 3)},
        {"input_ids": torch.ones(2, 3), "labels": torch.ones(2, dtype=torch.long)},
        {"input_ids": torch.ones(2, 3), "labels": torch.ones(2, 3)},
    ],
    ids=["missing", "four-dimensional mask", "labels of sequences", "targets"],
)
def test_what_is_no_mask_of_tokens_counts_none(batch) -> None:
    """Masks of attention scores, labels of whole sequences and float targets are no tokens."""
    counters = Counters()
    BatchCounter(counters, Values()).count(batch, 0)
    assert (counters.samples, counters.slots) == (2, 6)
    assert (counters.tokens, counters.loss_tokens) == (UNKNOWN, UNKNOWN)


def test_a_sum_on_a_device_is_not_read() -> None:
    """A tensor that is not on the host is handed on with the number of its iteration."""
    values, counters = Values(), Counters()
    ids = torch.ones(2, 3, device="meta", dtype=torch.long)
    BatchCounter(counters, values).count(
        {"input_ids": ids, "attention_mask": ids, "labels": ids}, 5
    )
    assert [(name, number) for name, _, number in values.counts] == [
        ("tokens", 5),
        ("loss_tokens", 5),
    ]
    assert all(value.device.type == "meta" and value.dim() == 0 for _, value, _ in values.counts)
    assert (counters.samples, counters.slots, counters.tokens) == (2, 6, UNKNOWN)


def test_the_users_answer_may_be_nothing() -> None:
    """A count of None leaves that number unknown, and the batch's own mask out of it."""
    counters = Counters()
    ids = torch.ones(2, 3, dtype=torch.long)
    count = BatchCounter(counters, Values(), lambda batch: None)
    count.count({"input_ids": ids, "attention_mask": ids}, 0)
    assert (counters.samples, counters.slots, counters.tokens) == (2, 6, UNKNOWN)

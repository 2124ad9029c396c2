"""Pieces of a tensor from any number of ranks, put into the part that a rank holds now."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from costlens.protect.regroup import Box


def cut(shape: tuple[int, ...], num: int, dim: int) -> list[Box]:
    """Return the parts of a tensor as FSDP cuts it, the last of them small or empty."""
    pieces = torch.arange(shape[dim]).chunk(num) if shape[dim] else ()
    found, begin = [], 0
    for index in range(num):
        length = len(pieces[index]) if index < len(pieces) else 0
        start, size = [0] * len(shape), list(shape)
        start[dim], size[dim] = begin, length
        found.append(Box(tuple(start), tuple(size)))
        begin += length
    return found


@pytest.mark.parametrize("shape", [(7,), (8, 3), (5, 4, 3), (1, 2)])
def test_any_cut_can_be_made_of_any_other(shape: tuple[int, ...]) -> None:
    """From one to five ranks, along every dimension: each value once, and the right one."""
    whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    dims = range(len(shape))
    for before, after in itertools.product(range(1, 6), repeat=2):
        dim, new_dim = random.Random(before * 10 + after).choices(dims, k=2)
        pieces = cut(shape, before, dim)
        for target in cut(shape, after, new_dim):
            values, num_filled = torch.full(target.shape, -1.0), 0
            for piece in pieces:
                common = target.overlap(piece)
                if common is None:
                    continue
                held = whole[tuple(map(slice, piece.start, _ends(piece)))]
                values[common.within(target)] = held[common.within(piece)]
                num_filled += common.num_values
            assert torch.equal(values, whole[tuple(map(slice, target.start, _ends(target)))])
            assert num_filled == target.num_values


def test_a_number_without_dimensions_is_one_value() -> None:
    """Such as the count of steps that an optimizer keeps."""
    scalar = Box((), ())
    assert scalar.overlap(scalar) == scalar
    assert scalar.num_values == 1
    assert scalar.within(scalar) == ()


def _ends(box: Box) -> list[int]:
    return [begin + length for begin, length in zip(box.start, box.shape, strict=True)]

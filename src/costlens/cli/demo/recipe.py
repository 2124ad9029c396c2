"""What both jobs share: batches, loss, optimizer and the sizes of the training.

Between text and model on one side and the two loops on the other. The same seed gives both loops
the same batches and the same initial weights.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from costlens.cli.demo.model import Gpt
from costlens.cli.demo.text import corpus

__all__ = [
    "Batch",
    "LossTrail",
    "Trained",
    "batch_loss",
    "build_loaders",
    "build_model",
    "build_optimizer",
    "single_thread",
    "validation_interval_steps",
]

ACCUMULATION = 2
BATCH_SIZE = 8
GRADIENT_CLIP = 1.0
LEARNING_RATE = 2e-3
MAX_STEPS = 200
NUM_VALIDATIONS = 4
NUM_VALIDATION_BATCHES = 8

_IGNORED = -100  # what cross_entropy leaves out
_SMOOTHED_OVER = 20

Batch = dict[str, Tensor]
"""`input_ids`, `labels` (the next bytes; -100 at padding) and `attention_mask` (1 = a real byte),
int64, each of the shape (batch, block size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What came of a training; losses are mean cross-entropies in nats a byte.

    Attributes:
        first: The first micro-batch, before any optimizer step.
        final: The last 20 micro-batches together.
        validation: The last validation.
        weights_digest: xxh3-128 over names and bits of all weights, 32 hex digits.
    """

    first: float
    final: float
    validation: float
    weights_digest: str


class LossTrail:
    """The losses of a training that its result tells of; saved and resumed with it."""

    def __init__(self) -> None:
        self.validation = float("nan")
        self._first: Tensor | None = None
        self._recent: deque[Tensor] = deque(maxlen=_SMOOTHED_OVER)

    def add(self, loss: Tensor) -> None:
        """Take the loss of a micro-batch, shape (), and wait for nothing."""
        loss = loss.detach()
        self._first = loss if self._first is None else self._first
        self._recent.append(loss)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed training goes on from."""
        return {
            "first": self._first,
            "recent": list(self._recent),
            "validation": self.validation,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._first, self.validation = state["first"], state["validation"]
        self._recent = deque(state["recent"], maxlen=_SMOOTHED_OVER)

    def summarise(self, model: torch.nn.Module) -> Trained:
        """Return what came of a training of one micro-batch or more.

        Args:
            model: As it is in the end.
        """
        if self._first is None:
            raise ValueError("there is nothing to summarise: no micro-batch has been trained")
        return Trained(
            first=self._first.item(),
            final=torch.stack(list(self._recent)).mean().item(),
            validation=self.validation,
            weights_digest=_digest(model),
        )


class Sequences(Dataset[Batch]):
    """Byte sequences as padded tensors, made when they are asked for."""

    def __init__(self, sequences: tuple[bytes, ...], block_size: int) -> None:
        super().__init__()
        self.sequences = sequences
        self.block_size = block_size

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> Batch:
        ids = torch.frombuffer(bytearray(self.sequences[index]), dtype=torch.uint8).long()
        num_padding = self.block_size - (len(ids) - 1)
        return {
            "input_ids": functional.pad(ids[:-1], (0, num_padding)),
            "labels": functional.pad(ids[1:], (0, num_padding), value=_IGNORED),
            "attention_mask": functional.pad(torch.ones_like(ids[1:]), (0, num_padding)),
        }


def build_loaders(seed: int, block_size: int) -> tuple[DataLoader[Batch], DataLoader[Batch]]:
    """Return the loaders of the training text, shuffled each epoch, and of the validation text.

    An epoch holds whole optimizer steps: what is left over at its end is not used, so that a loop
    that counts batches and one that starts afresh with each epoch step at the same places.

    Args:
        seed: Decides the order of the batches; never touches torch's global generator.
        block_size: Positions of every sequence, padding included.
    """
    text = corpus(block_size + 1)
    num_used = len(text.train) // (BATCH_SIZE * ACCUMULATION) * BATCH_SIZE * ACCUMULATION
    train = DataLoader(
        Sequences(text.train[:num_used], block_size),
        batch_size=BATCH_SIZE,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
    )
    num_judged = NUM_VALIDATION_BATCHES * BATCH_SIZE
    spread = text.validation[:: max(1, len(text.validation) // num_judged)][:num_judged]
    return train, DataLoader(Sequences(spread, block_size), batch_size=BATCH_SIZE)


def build_model(seed: int) -> Gpt:
    """Return a fresh model whose weights depend on nothing but `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Gpt()


def build_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return AdamW over all parameters of `model`."""
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))


def batch_loss(model: torch.nn.Module, batch: Batch) -> Tensor:
    """Return the mean cross-entropy over the real bytes of `batch`, in nats, shape ()."""
    logits = model(batch["input_ids"])
    return functional.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=_IGNORED
    )


@contextmanager
def single_thread() -> Iterator[None]:
    """Keep torch to one thread inside the block.

    So losses do not depend on the number of cores, and a busy core does not hold up the others at
    the end of every small operation.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def validation_interval_steps(max_steps: int) -> int:
    """Return after how many optimizer steps each validation comes: four fit into `max_steps`."""
    return max(1, max_steps // NUM_VALIDATIONS)


def _digest(model: torch.nn.Module) -> str:
    found = xxhash.xxh3_128()
    for name, weights in model.state_dict().items():
        found.update(name.encode())
        found.update(weights.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()

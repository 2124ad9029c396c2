"""The demo's text: the language reference that every Python ships for its `help()`.

First in the demo's flow. Nothing is downloaded, and nothing is random: one machine always gets the
same bytes in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pydoc_data import topics

__all__ = ["Corpus", "corpus"]

_VALIDATION_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Sequences of UTF-8 bytes to learn from and to be judged by.

    Attributes:
        train: Non-empty sequences, in the order of the topics.
        validation: The same, from every tenth topic; no topic is in both.
    """

    train: tuple[bytes, ...]
    validation: tuple[bytes, ...]


def corpus(max_bytes: int) -> Corpus:
    """Return the text cut into sequences that end where a line ends.

    Whole lines seldom fill a sequence, so most batches will hold padding, as real ones do.

    Args:
        max_bytes: Longest sequence in bytes, >= 2 (a byte and the one to predict).

    Raises:
        ValueError: If `max_bytes` is below 2.
    """
    if max_bytes < 2:
        raise ValueError(f"max_bytes must be >= 2, got {max_bytes}")
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for index, name in enumerate(sorted(topics.topics)):
        sequences = _cut(topics.topics[name].encode(), max_bytes)
        parts[index % _VALIDATION_EVERY == 0].extend(sequences)
    return Corpus(train=tuple(parts[False]), validation=tuple(parts[True]))


def _cut(text: bytes, max_bytes: int) -> list[bytes]:
    """Return `text` in pieces of at most `max_bytes`, of whole lines where a line fits."""
    pieces = []
    start = 0
    while start < len(text):
        end = start + max_bytes
        if end < len(text):
            newline = text.rfind(b"\n", start, end)
            end = newline + 1 if newline > start else end
        pieces.append(text[start:end])
        start = end
    return [piece for piece in pieces if len(piece) >= 2]

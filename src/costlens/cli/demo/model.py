"""The demo's model: a GPT over bytes, small enough for two CPU cores.

Both jobs train it. It is a plain `torch.nn.Module` that returns logits and knows nothing of loss
masks, frameworks or costlens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Gpt", "Shape"]

NUM_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model; the defaults make 257,664 parameters.

    Attributes:
        block_size: Longest sequence in bytes, >= 1.
        num_layers: Transformer blocks, >= 1.
        num_heads: Attention heads of a block; divides `width`.
        width: Size of a position's vector.
    """

    block_size: int = 96
    num_layers: int = 2
    num_heads: int = 4
    width: int = 96


class Gpt(nn.Module):
    """A decoder-only transformer over bytes with tied input and output embeddings."""

    def __init__(self, shape: Shape | None = None) -> None:
        super().__init__()
        self.shape = shape or Shape()
        self.byte_embedding = nn.Embedding(NUM_BYTES, self.shape.width)
        self.position_embedding = nn.Embedding(self.shape.block_size, self.shape.width)
        self.blocks = nn.Sequential(*(Block(self.shape) for _ in range(self.shape.num_layers)))
        self.norm = nn.LayerNorm(self.shape.width)
        self.apply(_initialise)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits of each next byte.

        Attention is causal and padding stands at the end, so no real position ever sees padding and
        no mask is needed here.

        Args:
            input_ids: Bytes as int64, shape (batch, time), time <= `shape.block_size`.

        Returns:
            Float logits, shape (batch, time, 256).
        """
        positions = self.position_embedding.weight[: input_ids.shape[1]]
        hidden = self.norm(self.blocks(self.byte_embedding(input_ids) + positions))
        return functional.linear(hidden, self.byte_embedding.weight)


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each behind a norm and with a skip connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.to_query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.from_heads = nn.Linear(shape.width, shape.width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the next block's input, of the shape (batch, time, width) that came in."""
        attended = hidden + self._attention(self.attention_norm(hidden))
        return attended + self.perceptron(attended)  # type: ignore[no-any-return]

    def _attention(self, hidden: Tensor) -> Tensor:
        heads = self.to_query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width / heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.from_heads(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


def _initialise(module: nn.Module) -> None:
    """Draw normal weights and zero biases; 0.05 learns faster than GPT-2's 0.02 at this depth."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.05)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)

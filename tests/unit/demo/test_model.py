"""The demo's model."""

from __future__ import annotations

import torch

from costlens.cli.demo.model import Gpt, Shape
from costlens.cli.demo.recipe import build_model


def test_later_bytes_and_padding_never_change_earlier_predictions() -> None:
    """Attention is causal, so logits before a changed byte stay as they were."""
    model = build_model(0).eval()
    ids = torch.arange(64).unsqueeze(0)
    changed = ids.clone()
    changed[0, 40:] = 0
    with torch.inference_mode():
        before, after = model(ids), model(changed)
    assert before.shape == (1, 64, 256)
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:])


def test_the_default_model_has_the_documented_number_of_parameters() -> None:
    """The number in `Shape`'s docstring is the model's."""
    num_parameters = sum(parameter.numel() for parameter in Gpt().parameters())
    assert f"{num_parameters:,} parameters" in (Shape.__doc__ or "")


def test_weights_follow_the_seed_and_leave_torchs_generator_alone() -> None:
    """Same seed, same weights; another seed, others; the global generator does not move."""
    before = torch.get_rng_state()
    first, again, other = (build_model(seed).byte_embedding.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())

"""Which hook of a callback takes the longest, by the looks that found the training thread in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.measures import rise

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["find_hook"]

# At half, one standard deviation of a share out of 8 is 18 %.
_LEAST_LOOKS = 8
_MAIN_SHARE = 0.5


def find_hook(evidence: Evidence) -> str | None:
    """Return the hook in which at least half of the looks at hooks found the training thread.

    Args:
        evidence: The evidence.

    Returns:
        Class and hook, such as ``SaveImages.on_train_batch_end``; None where none stands out or
        too few looks tell.
    """
    looks = evidence.now.looks
    num_seen = rise(evidence, "looks", "in_callbacks") or 0.0
    if looks is None or num_seen < _LEAST_LOOKS:
        return None
    before = None if evidence.before is None else evidence.before.looks
    earlier = {} if before is None else before.hooks
    risen = {name: count - earlier.get(name, 0) for name, count in looks.hooks.items()}
    slowest = max(risen, key=risen.__getitem__, default=None)
    return slowest if slowest and risen[slowest] >= _MAIN_SHARE * num_seen else None

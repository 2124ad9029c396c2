"""Which devices the launcher lets this process use, as it says in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["read_visible"]


def read_visible(environ: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """Return CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, None where they are not set.

    Args:
        environ: The environment to read; this process's own by default.
    """
    seen = os.environ if environ is None else environ
    return seen.get("CUDA_VISIBLE_DEVICES"), seen.get("CUDA_DEVICE_ORDER")

"""What every piece of a record is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Part"]


class Part(BaseModel):
    """A piece of a record: frozen, and silent about fields it does not know."""

    # A newer costlens may have written fields this one does not know: readers skip them.
    model_config = ConfigDict(extra="ignore", frozen=True)

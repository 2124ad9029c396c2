"""Makes parts of a record by their names, so that the model does not depend on where they stand."""

from __future__ import annotations

from typing import Any, get_args

from costlens.core.part import Part
from costlens.core.records import RankRecord

__all__ = ["fields_of"]


def fields_of(name: str, **values: Any) -> Part | None:
    """Return a part of the record from what is known; None where the record has no such part.

    Args:
        name: The field of the record.
        **values: What is known; what the part has no field for is left out.
    """
    if name not in RankRecord.model_fields:
        return None
    kinds = get_args(RankRecord.model_fields[name].annotation)
    kind = next(each for each in kinds if isinstance(each, type) and issubclass(each, Part))
    return kind.model_validate({n: v for n, v in values.items() if n in kind.model_fields})

"""JSON objects as files hold them: anybody may have written those, so decoding expects anything."""

from __future__ import annotations

import json

__all__ = ["decode_object"]


def decode_object(data: bytes) -> dict[str, object]:
    """Return the object in a JSON text.

    Raises:
        ValueError: If it is no JSON, nested too deeply to be read, or no object; says which.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is needed, got {type(value).__name__}")  # noqa: TRY004 - the data is wrong, not the code
    return value

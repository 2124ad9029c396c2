"""What is wrong with the text of an endpoint, and how it may be shown. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = ["find_fault", "show_endpoint"]

_HTTP = frozenset({"http", "https"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_SHOWN = 80


def find_fault(text: str, *, needs_scheme: bool) -> str | None:
    """Return why a text names no endpoint, a clause; None where it does.

    Args:
        text: A URL, or for gRPC ``host:port`` or another target that gRPC knows.
        needs_scheme: Whether it has to begin with ``http://`` or ``https://``.
    """
    if any(character.isspace() or not character.isprintable() for character in text):
        return "it holds a space"
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
    except ValueError:
        return "its host cannot be read"
    if needs_scheme and parts.scheme.lower() not in _HTTP:
        return "it begins with neither http:// nor https://"
    if parts.scheme and parts.scheme.lower() not in _HTTP:
        return None  # such as unix:// or dns://, which gRPC reads itself
    if not parts.hostname:
        return "it names no host"
    try:
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    return None if is_port else "its port is no number from 1 to 65535"


def show_endpoint(text: str) -> str:
    """Return the text of an endpoint without user, password and query, whether it is one or not."""
    head, at, tail = text.rpartition("@")
    scheme = _SCHEME.match(head)  # a password may hold slashes, too
    shown = f"{scheme[0] if scheme else ''}***@{tail}" if at else text
    place, *query = re.split(r"[?#]", shown, maxsplit=1)
    return f"{place}?***"[:_MAX_SHOWN] if query else place[:_MAX_SHOWN]

"""Tells local paths from URLs, and takes credentials out of whatever is shown.

The first thing a `Store` does with the text a user configured; no disk, no network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from costlens.errors import ConfigError

__all__ = ["Location", "parse_location", "redact"]

# At least two characters: a single letter before the colon is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_LOST_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/(?!/)")
_WINDOWS_DRIVE_URL = re.compile(r"/[A-Za-z]:")
_LOCAL_SCHEMES = frozenset({"file", "local"})
# Here the part before the @ names a container, which a reader of the message needs.
_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs"})
# With a colon up to the last @, because secret keys of AWS may hold slashes.
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://(\S*:\S*|[^/?#\s]*)@")
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+://[^\s?#'\"]*)[?#][^\s'\"]+")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store lies.

    Attributes:
        url: The text as configured; may hold credentials, so it is left out of the repr.
        path: Absolute local folder, or None where fsspec has to be asked.
    """

    url: str = field(repr=False)
    path: Path | None

    @property
    def shown(self) -> str:
        """The place as it may appear in messages and records: no user, password or query."""
        return redact(self.url) if self.path is None else str(self.path)

    @property
    def has_secret(self) -> bool:
        """Whether the URL holds what must not be shown."""
        return self.path is None and redact(self.url) != self.url

    def scrub(self, text: str) -> str:
        """Return `text` without the secrets of this URL, whichever part of it the text repeats."""
        if self.has_secret:
            user = _USER.match(self.url)
            parts = [user[2], user[2].partition(":")[2]] if user else []
            parts += re.split(r"[?#]", self.url, maxsplit=1)[1:]
            for part in (*parts, *map(unquote, parts)):
                text = text.replace(part, "***") if part else text
        return redact(text)


def parse_location(url: str | os.PathLike[str]) -> Location:
    r"""Return where `url` points: a local folder or a remote one.

    ``C:\runs``, ``\\server\share``, ``~/runs`` and everything without ``scheme://`` are local, as
    are ``file://`` and ``local://``. Relative paths are made absolute now, since the working
    directory may change while training. As in fsspec, ``%20`` in a file URL is three characters.

    Args:
        url: A path or an fsspec URL.

    Raises:
        ConfigError: If the text is empty, holds a NUL, chains file systems with ``::``, is a URL
            that lost a slash (``s3:/bucket``), or needs a home directory where there is none.
    """
    text = os.fspath(url)
    if not text.strip() or "\0" in text:
        raise ConfigError(f"a store needs a path or a URL, got {text!r}")
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() in _LOCAL_SCHEMES:
        path = text[scheme.end() :]
        if os.name == "nt" and _WINDOWS_DRIVE_URL.match(path):
            path = path[1:]
        return Location(text, _absolute(path))
    if "::" in text and "://" in text:
        raise ConfigError(
            f"{redact(text)!r} chains file systems with '::', which may read stale copies; "
            "name the store itself"
        )
    if scheme is None:
        if _LOST_SLASH.match(text):
            raise ConfigError(
                f"{redact(text)!r} is neither a path nor a URL: after the scheme it needs two "
                "slashes; pathlib removes one, so pass URLs as str"
            )
        return Location(text, _absolute(text))
    return Location(text, None)


def redact(text: str) -> str:
    """Return `text` with the users, passwords, queries and fragments of its URLs as ``***``."""

    def without_user(match: re.Match[str]) -> str:
        if match[1].lower() in _CONTAINER_SCHEMES and ":" not in match[2]:
            return match[0]
        return f"{match[1]}://***@"

    return _QUERY.sub(r"\1?***", _USER.sub(without_user, text))


def _absolute(path: str) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{path!r} needs a home directory, and there is none: {error}") from error

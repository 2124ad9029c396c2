"""Makes names from outside fit to be one part of a path, and run ids out of them.

Run names and ids come from arguments, variables, schedulers and files; everything that becomes a
part of a key passes here first. Pure.
"""

from __future__ import annotations

import hashlib
import re
import string
import time
import unicodedata

__all__ = ["new_run_id", "safe_name"]

_MAX_BYTES = 120  # file systems allow 255 bytes a part; a path of several has to fit as well
_HASH_CHARS = 8
_KEPT = frozenset(string.ascii_letters + string.digits + "._-")
# A thousand tasks of an array may start in one second: four digits would let some share a run.
_ENTROPY_CHARS = 8
_STAMP_BYTES = len("-yyyymmdd-hhmmss-") + _ENTROPY_CHARS
# What Windows takes for devices, whatever follows a dot; and the word for the newest run.
_RESERVED = re.compile(r"(?i:(con|prn|aux|nul|com\d|lpt\d)(\.|$))|latest$")


def safe_name(text: str) -> str:
    """Return `text` where it can be one part of a path, else a form of it that can.

    ASCII letters and digits, ``.``, ``_`` and ``-`` stay, accents go; a changed name ends in a
    short hash of the original, so that two names do not become one. Always the same for the same
    text, whatever the locale, and ``safe_name(safe_name(x)) == safe_name(x)``.

    Args:
        text: Any text, hostile or empty.

    Returns:
        1 to 120 bytes of ASCII; never a path, a hidden file, a Windows device, or ``latest``.
    """
    return _safe_name(text, _MAX_BYTES)


def new_run_id(name: str, wall_ns: int, entropy: str) -> str:
    """Return ``<name>-<yyyymmdd-hhmmss>-<8 hex>``, which `safe_name` leaves as it is.

    Args:
        name: The run's name, made safe and short enough here.
        wall_ns: Unix time in nanoseconds; shown in UTC.
        entropy: Any text that tells runs of the same name and second apart; only a hash is shown.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(wall_ns // 1_000_000_000))
    digest = _digest(entropy)[:_ENTROPY_CHARS]
    return f"{_safe_name(name, _MAX_BYTES - _STAMP_BYTES)}-{stamp}-{digest}"


def _safe_name(text: str, max_bytes: int) -> str:
    # ASCII alone: ranks of one job may run under different locales, and have to find one folder.
    bare = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    kept = "".join(c if c in _KEPT else "-" for c in bare)
    kept = kept.strip(".-")  # hidden files, options of a command line, a dot Windows drops
    if _RESERVED.match(kept):
        kept = f"run-{kept}"
    if kept == text and kept and len(kept) <= max_bytes:
        return kept
    room = max_bytes - 1 - _HASH_CHARS
    stem = kept[:room].strip(".-")
    return f"{stem or 'run'}-{_digest(text)[:_HASH_CHARS]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

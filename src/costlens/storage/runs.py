"""Which runs a store holds, and the one a user means.

Used by the command line and the readers, never by a run that trains.
"""

from __future__ import annotations

import calendar
import difflib
import re
import time
from contextlib import suppress

from costlens.errors import RunNotFoundError, StorageError
from costlens.storage.json_object import decode_object
from costlens.storage.location import parse_location
from costlens.storage.names import safe_name
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

__all__ = ["LATEST", "find_run", "is_alive_since", "list_runs", "open_run"]

LATEST = "latest"
_STAMP = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4,8}$")
_MAX_SHOWN = 10
# What can only be a path; a name may hold a slash, too.
_PATH_STARTS = ("/", "./", "../", "~")


def list_runs(store: Store) -> list[str]:
    """Return the sorted ids of the runs in `store`: the folders that hold a claimed attempt.

    One listing, and one more a folder. A folder that cannot be looked into counts, so that it is
    not missed.

    Raises:
        StorageError: If the store cannot be listed.
    """
    return [run_id for run_id in _folders(store) if _is_run(store, run_id)]


def is_alive_since(folder: RunFolder, since: float) -> bool:
    """Return whether a run may have been alive at or after a Unix time; one or two small reads.

    What cannot be told counts as alive, so that nothing is missed.
    """
    try:
        newest = max(folder.attempts(), default=0)
        record = folder.read_record(newest, 0)
        return record is None or _read_heartbeat(record) >= since
    except (StorageError, ValueError, KeyError, TypeError):
        return True


def _read_heartbeat(record: bytes) -> float:
    return float(decode_object(record)["attempt"]["heartbeat_time"])  # type: ignore[index]


def open_run(text: str, run_dir: str) -> RunFolder:
    """Return the folder of the run that a user means.

    Args:
        text: The path or URL of a run's folder, or what `find_run` takes.
        run_dir: The path or URL that holds the folders of runs, for the latter.

    Raises:
        ConfigError: If the text can be neither a path nor a URL.
        RunNotFoundError: If there is no such run, or more than one fits.
        StorageError: If the place cannot be listed.
    """
    if "/" in text:
        parse_location(text)  # so that an error shows it whole
    place, _, name = text.rstrip("/").rpartition("/")
    is_path = "://" in text or text.startswith(_PATH_STARTS)
    # Of s3://bucket there is nothing above that could be listed.
    if name and (place or text.startswith("/")) and not place.endswith("/"):
        store = Store(place or "/")
        if safe_name(name) == name and _is_run(store, name):
            return RunFolder(store, name)
    if is_path:
        raise RunNotFoundError(
            f"there is no run in {Store(text).shown_url}: a run's folder holds attempts/0001.json; "
            "name that folder, or a run's id with --dir for the folder above"
        )
    store = Store(run_dir)
    return RunFolder(store, find_run(store, text))


def find_run(store: Store, text: str) -> str:
    """Return the id of the run that `text` names.

    In this order: the exact id, the beginning of one id, a part of one id, or ``latest``, the run
    launched last. A run's name finds it whatever had to be changed to make it safe as a path.

    Raises:
        RunNotFoundError: If no run or more than one fits; lists those that do, or the nearest.
        StorageError: If the store cannot be listed.
    """
    if text == LATEST:
        runs = list_runs(store)
        if not runs:
            raise _not_found(store, text, runs)
        return max(runs, key=lambda run_id: (_launched_ns(store, run_id), run_id))
    safe = safe_name(text)
    if _is_run(store, safe):
        return safe
    runs = list_runs(store)
    for fits in (str.startswith, str.__contains__):
        matches = [run_id for run_id in runs if text and (fits(run_id, text) or fits(run_id, safe))]
        if len(matches) > 1:
            raise RunNotFoundError(
                f"{text!r} fits {len(matches)} runs in {store.shown_url}: {_shown(matches)}; "
                "write more of the id"
            )
        if matches:
            return matches[0]
    raise _not_found(store, text, runs)


def _not_found(store: Store, text: str, runs: list[str]) -> RunNotFoundError:
    if not runs:
        return RunNotFoundError(
            f"no run {text!r}: there are no runs in {store.shown_url}; train with costlens first, "
            "or set COSTLENS_DIR to the folder that the run used"
        )
    nearest = difflib.get_close_matches(text, runs, n=_MAX_SHOWN, cutoff=0.4)
    found = f"the nearest are {_shown(nearest)}" if nearest else f"it holds {_shown(runs)}"
    return RunNotFoundError(f"no run {text!r} in {store.shown_url}: {found}")


def _shown(runs: list[str]) -> str:
    more = f" and {len(runs) - _MAX_SHOWN} more" if len(runs) > _MAX_SHOWN else ""
    return ", ".join(runs[:_MAX_SHOWN]) + more


def _folders(store: Store) -> list[str]:
    names = (name[:-1] for name in store.children() if name.endswith("/"))
    return [name for name in names if safe_name(name) == name]


def _is_run(store: Store, run_id: str) -> bool:
    try:
        return bool(RunFolder(store, run_id).attempts())
    except StorageError:
        return True


def _launched_ns(store: Store, run_id: str) -> int:
    """Return when the run was launched last, from its claims, else from its id, else 0."""
    launches: list[object] = []
    with suppress(StorageError):
        claims, _ = RunFolder(store, run_id).read_claims()
        launches = [claim.get("wall_ns") for claim in claims.values()]
    return max([_stamped_ns(run_id), *(at for at in launches if isinstance(at, int))])


def _stamped_ns(run_id: str) -> int:
    stamp = _STAMP.search(run_id)
    if stamp is None:
        return 0
    try:
        return calendar.timegm(time.strptime(stamp[1], "%Y%m%d-%H%M%S")) * 1_000_000_000
    except ValueError:  # digits that are no date
        return 0

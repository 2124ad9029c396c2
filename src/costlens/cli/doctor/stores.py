"""Are the run folder and the checkpoint store there, writable, and exclusive?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from costlens.cli.doctor.answer import Answer, Status, ok, problem, skipped
from costlens.cli.doctor.clock import judge_offset
from costlens.config import Config
from costlens.errors import ConfigError, StorageError

__all__ = ["check_checkpoints", "check_run_folder"]

_PLACE = "COSTLENS_CHECKPOINT_URL"
_PROBE = re.compile(r"'costlens-doctor-[^']*'")


def check_run_folder(config: Config) -> Iterator[Answer]:
    """Yield whether records can be kept where the settings say."""
    where = "the default of COSTLENS_DIR" if config.checkpoint_url is None else _PLACE
    where = "COSTLENS_DIR or --dir" if "dir" in config.model_fields_set else where
    consequence = "records could not be written, and a run would keep nothing"
    yield from _probe(config.run_dir, where, consequence)


def check_checkpoints(config: Config) -> Iterator[Answer]:
    """Yield whether checkpoints can be kept where the settings say."""
    if config.checkpoint_url is None:
        yield skipped(
            "no place for checkpoints is set",
            f"set {_PLACE}, and a crash costs minutes instead of everything",
        )
        return
    yield from _probe(config.checkpoint_url, _PLACE, "the first save would fail")


def _probe(url: str, variable: str, consequence: str) -> Iterator[Answer]:
    from costlens.storage.probe import probe_store
    from costlens.storage.store import Store

    try:
        seen = probe_store(url)
    except ConfigError as error:
        yield problem(f"{error}: {consequence}", f"mend {variable}")
        return
    except StorageError as error:
        what, _, fix = _PROBE.sub("a small object", str(error)).rpartition("; ")
        yield problem(
            f"{variable}: {what or fix}: {consequence}", fix if what else f"mend {variable}"
        )
        return
    place = Store(url).shown_url
    yield ok(
        f"{place} takes writes, refuses to create twice, and forgets; {1000 * seen.took_s:.0f} ms",
        {"place": place, "probe_s": seen.took_s},
    )
    if seen.clock_offset_s is not None:
        told = judge_offset(seen.clock_offset_s, f"the clock of {place}")
        # That it is right needs no line of its own.
        yield from [] if told.status is Status.OK else [told]

"""The ledger: all records of a run's ranks and attempts merged into the one that readers use.

Pure and independent of the order of the records, so every reader of a run folder gets the same
answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from costlens.account.attempts import (
    Ends,
    close_lost,
    flag_clocks,
    group_attempts,
    summarize_attempt,
)
from costlens.account.budget import merge_budget
from costlens.account.checkpoints import merge_checkpoints
from costlens.account.cost import charge_rank, idle_device_ns, price_run
from costlens.account.counts import merge_progress, steps_made
from costlens.account.datasets import flag_datasets
from costlens.account.documents import encode_document
from costlens.account.goodput import count_lost_steps, divide_time, tell_queue
from costlens.account.gpus import merge_gpus
from costlens.account.hosts import merge_hosts
from costlens.account.mfu import merge_mfu
from costlens.account.precision import flag_precision, merge_precision
from costlens.account.proven import credit_proven_steps
from costlens.account.quality import merge_quality
from costlens.account.queue import merge_queue
from costlens.account.restarts import count_work, find_restart_loop
from costlens.account.sharing import share_devices
from costlens.account.telemetry import merge_telemetry
from costlens.account.throughput import merge_iteration_times, merge_rates, merge_startup
from costlens.core.clock import NS_PER_S
from costlens.core.job_records import QueuePart
from costlens.core.phases import NAMES, Phase
from costlens.core.records import RANK_SCHEMA, Outcome, RankRecord
from costlens.core.run_record import AttemptSummary, RankSummary, RunRecord
from costlens.errors import RecordError

__all__ = ["merge", "merge_readable", "parse_records", "settle"]

# What working with values that a record may hold could raise.
_UNFORESEEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_IDLE_DEVICE = Phase.IDLE_DEVICE.name.lower()
_NO_RECORD = "the run has no readable record yet"
_MAX_SHOWN = 60


def parse_records(
    documents: Mapping[str, Mapping[str, object]],
) -> tuple[dict[str, RankRecord], list[str]]:
    """Return the readable records by name, and a line for each document that is not one.

    Args:
        documents: Decoded JSON of record files, by the names of the files.
    """
    records, problems = {}, []
    for name, document in documents.items():
        version = document.get("schema_version")
        if version != RANK_SCHEMA:
            shown = repr(version)[:_MAX_SHOWN]
            problems.append(
                f"{name}: a record of version {shown} was skipped; this costlens reads "
                f"{RANK_SCHEMA}"
            )
            continue
        try:
            records[name] = _validate(document)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            problems.append(f"{name}: the record was skipped: {place} is missing or wrong")
        except ValueError as error:
            problems.append(f"{name}: the record was skipped: {error}")
    return records, problems


def _validate(document: Mapping[str, object]) -> RankRecord:
    # Strictly, and as JSON: there "inf" and "12" are texts, and an enumeration's value is one.
    return RankRecord.model_validate_json(encode_document(document), strict=True)


def merge_readable(
    records: Mapping[str, RankRecord],
    problems: Sequence[str] = (),
    *,
    now: float,
    ends: Ends | None = None,
) -> RunRecord:
    """Return the merged record of a run without those records that cannot be worked with.

    What each says may be allowed and yet not fit together, in a way that nobody foresaw: such a
    record is named among the problems, and hides no other.

    Args:
        records: Records of one run by the names of their files.
        problems: What could not be read, to be told along.
        now: Unix time of the reader, against which a silent rank counts as lost.
        ends: What a witness says of processes that are gone.

    Raises:
        RecordError: If there is no record.
    """
    try:
        return merge([*records.values()], problems, now=now, ends=ends)
    except RecordError:
        raise
    except _UNFORESEEN:
        usable, told = _leave_out(records, problems, now, is_together=False)
    try:
        return merge([*usable.values()], told, now=now, ends=ends)
    except _UNFORESEEN:
        usable, told = _leave_out(usable, told, now, is_together=True)
    return merge([*usable.values()], told, now=now, ends=ends)


def _leave_out(
    records: Mapping[str, RankRecord], problems: Iterable[str], now: float, *, is_together: bool
) -> tuple[dict[str, RankRecord], list[str]]:
    """Return the records that can be merged, each alone or all together, and the problems."""
    usable: dict[str, RankRecord] = {}
    told = [*problems]
    for name, record in records.items():
        try:
            merge([*(usable.values() if is_together else ()), record], now=now)
        except _UNFORESEEN as error:
            told.append(f"{name}: the record was skipped: {type(error).__name__} in its sums")
        else:
            usable[name] = record
    return usable, told


def merge(
    records: Sequence[RankRecord],
    problems: Iterable[str] = (),
    *,
    now: float,
    ends: Ends | None = None,
) -> RunRecord:
    """Return the merged record of a run.

    Sums run over ranks and attempts; rates, durations of iterations and start-up are those of the
    newest attempt. Durations are what each rank measured on its own clock, so they never go back or
    mix hosts.

    Args:
        records: Records of one run in any order, at least one.
        problems: What could not be read, to be told along.
        now: Unix time of the reader, against which a silent rank counts as lost.
        ends: What a witness says of processes that are gone.

    Raises:
        RecordError: If there is no record.
    """
    if not records:
        raise RecordError(_NO_RECORD)
    everyone, notes = settle(records, now, ends)
    groups = group_attempts(everyone)
    attempts = [summarize_attempt(group) for group in groups.values()]
    notes += _flag(everyone, groups, attempts, now)
    queue, queue_notes = merge_queue(groups)
    merged = _add_up(everyone, groups, attempts, queue)
    return merged.model_copy(update={"problems": sorted({*problems, *notes, *queue_notes})})


def _add_up(
    everyone: Sequence[RankRecord],
    groups: Mapping[int, Sequence[RankRecord]],
    attempts: list[AttemptSummary],
    queue: QueuePart,
) -> RunRecord:
    """Return the merged record of settled records, but for what there is to be told of them."""
    newest = groups[max(groups)]
    lost_steps = count_lost_steps(attempts, steps_made(everyone))
    time_s = _sum_time(everyone)
    priced = [(record, charge_rank(record)) for record in everyone]
    charges = [charge for _, charge in priced if charge is not None]
    gpu = merge_gpus(everyone)
    goodput = divide_time(everyone, charges, attempts, lost_steps)
    utilizations = {"gpu_utilization": gpu.utilization, "goodput": goodput.share}
    is_complete = not _flag_missing(attempts)
    cost = price_run(everyone, lost_steps, utilizations, is_complete=is_complete)
    progress = merge_progress(everyone, lost_steps)
    return RunRecord(
        run=newest[0].run,
        attempts=attempts,
        restart_loop=find_restart_loop(attempts, count_work(everyone), cost),
        ranks=_summarize_ranks(everyone),
        progress=progress,
        time_s=time_s,
        rates=merge_rates(newest),
        iteration_time=merge_iteration_times(record.iteration_time for record in newest),
        startup=merge_startup([record.startup for record in newest]),
        gpu=gpu,
        host=merge_hosts(everyone),
        queue=queue,
        cost=cost,
        budget=merge_budget(newest[0], cost),
        goodput=tell_queue(goodput, queue),
        mfu=merge_mfu(newest),
        precision=merge_precision(groups, priced, progress.skipped_steps),
        checkpoints=merge_checkpoints(everyone, time_s.get("checkpoint", 0.0), cost),
        quality=merge_quality(groups, priced),
        telemetry=merge_telemetry(everyone),
    )


def settle(
    records: Sequence[RankRecord], now: float, ends: Ends | None = None
) -> tuple[list[RankRecord], list[str]]:
    """Return one record per attempt and rank in their order, silent deaths closed, and notes.

    Args:
        records: Records of one run in any order.
        now: Unix time of the reader, against which a silent rank counts as lost.
        ends: What a witness says of processes that are gone.
    """
    chosen, notes = _choose(records)
    groups = group_attempts(close_lost(chosen, now, ends))
    in_order = [record for group in groups.values() for record in group]
    return credit_proven_steps(share_devices(in_order)), notes


def _choose(records: Sequence[RankRecord]) -> tuple[list[RankRecord], list[str]]:
    found: dict[tuple[int, int], list[RankRecord]] = {}
    for record in records:
        found.setdefault((record.attempt.number, record.rank.rank), []).append(record)
    return [_newest(same) for same in found.values()], [
        f"attempt {attempt}, rank {rank} has {len(same)} records; the newest counts"
        for (attempt, rank), same in found.items()
        if len(same) > 1
    ]


def _newest(records: Sequence[RankRecord]) -> RankRecord:
    if len(records) == 1:
        return records[0]
    # The whole text breaks ties, so that the order of the records cannot.
    return max(records, key=lambda r: (r.attempt.heartbeat_time, r.total_ns, r.model_dump_json()))


def _flag(
    everyone: Sequence[RankRecord],
    groups: Mapping[int, Sequence[RankRecord]],
    attempts: Sequence[AttemptSummary],
    now: float,
) -> list[str]:
    return [
        *_flag_missing(attempts),
        *_flag_sums(everyone),
        *flag_clocks(attempts, everyone, now),
        *flag_datasets(everyone),
        *flag_precision(groups),
    ]


def _flag_missing(attempts: Sequence[AttemptSummary]) -> list[str]:
    return [
        f"attempt {attempt.number} has records of {attempt.num_ranks} of {attempt.world_size} "
        "ranks; totals leave the others out"
        for attempt in attempts
        if attempt.num_ranks < attempt.world_size
    ]


def _flag_sums(records: Sequence[RankRecord]) -> list[str]:
    return [
        f"attempt {record.attempt.number}, rank {record.rank.rank}: the phases add up to "
        f"{sum(record.time_ns.values())} ns, not to {record.total_ns} ns"
        for record in records
        if sum(record.time_ns.values()) != record.total_ns
    ]


def _sum_time(records: Sequence[RankRecord]) -> dict[str, float]:
    sums: Counter[str] = Counter(dict.fromkeys(NAMES, 0))
    for record in records:
        sums.update(record.time_ns)
    sums[_IDLE_DEVICE] += sum(map(idle_device_ns, records))
    total_ns = sum(record.total_ns + idle_device_ns(record) for record in records)
    return {name: ns / NS_PER_S for name, ns in sums.items()} | {"total": total_ns / NS_PER_S}


def _summarize_ranks(records: Sequence[RankRecord]) -> list[RankSummary]:
    newest = {record.rank.rank: record for record in records}  # attempts come in order
    return [_summarize_rank(newest[rank]) for rank in sorted(newest)]


def _summarize_rank(record: RankRecord) -> RankSummary:
    # A lost rank keeps its open phase: it is where it was last seen.
    is_open = record.attempt.outcome in {Outcome.RUNNING, Outcome.LOST}
    return RankSummary(
        rank=record.rank.rank,
        attempt=record.attempt.number,
        host_name=record.rank.host_name,
        device=record.rank.device,
        outcome=record.attempt.outcome,
        heartbeat_time=record.attempt.heartbeat_time,
        time_s=_sum_time([record]),
        progress=record.progress,
        median_iteration_s=record.iteration_time.median_s,
        startup=record.startup,
        open_phase=record.open_phase if is_open else None,
        open_phase_s=record.open_phase_s if is_open else None,
        stall=record.stall if is_open else None,
        job=record.job,
        detail=record.telemetry.detail if is_open else None,
    )

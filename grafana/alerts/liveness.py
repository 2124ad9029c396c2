"""Alerts on the run itself: does it live, does it move, does it get anywhere."""

from __future__ import annotations

from grafana.alerts.model import RANK, RUN, Alert, Case, Query
from grafana.alerts.situations import gauge, rank, series

__all__ = ["ALERTS"]

_AGE = "{{ $value | humanizeDuration }}"

_STALLED = Alert(
    name="CostlensRunStalled",
    area="run",
    severity="critical",
    value="""topk by (costlens_run_id, costlens_phase) (1,
  max by (costlens_run_id, costlens_rank, costlens_phase) (costlens_phase_open_age_seconds)
  * on (costlens_run_id, costlens_rank) group_left ()
  (max by (costlens_run_id, costlens_rank) (costlens_stall_age_seconds) > bool 0)
)""",
    bound="> 0",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_live:last_time",
    hold="brief",
    summary=f"Run {RUN} stands still in {{{{ $labels.costlens_phase }}}}",
    description=f"Rank {RANK} has been in {{{{ $labels.costlens_phase }}}} for {_AGE}: more than "
    "ten times the usual. The job is paid for and makes no progress.",
    dashboard="run",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.iteration" }'
    " | select(span.costlens.rank, span.costlens.iteration)",
    meaning="The training thread of at least one rank has not moved for longer than ten times what "
    "is usual in its phase (never less than a minute; half an hour in start-up; a save counts as "
    "well). All ranks of a data-parallel job stand still with it: those that wait for it are in "
    "`backward` or `communication`, the one that holds them up is in another phase.",
    checks=(
        "Which rank is in another phase than most? The first query shows the phase of each. That "
        "rank's host and its log are where to look.",
        "The event `costlens.stalled` in that rank's log holds the stack of the training thread: "
        "the topmost line outside of libraries is what it waits for.",
        "In `data_wait`: is the store reachable, do loader workers live? In `checkpoint`: is the "
        "store full or slow? In `backward` on all ranks: look for a GPU that the driver has lost.",
    ),
    queries=(
        Query(
            "The open phase of every rank and its age",
            "promql",
            'topk by (costlens_rank) (1, costlens_phase_open_age_seconds{costlens_run_id="$run"})',
        ),
        Query(
            "The stack of the training thread",
            "logql",
            '{service_name=~".+"} | costlens_run_id="$run" | event_name="costlens.stalled"',
        ),
    ),
    cases=(
        Case(
            "a rank hangs in its data, the other waits for it in backward",
            (
                *rank(0),
                *rank(1),
                series("costlens_stall_age_seconds", "0x30 0+60x29"),
                series("costlens_stall_age_seconds", "0x30 0+60x29", rank="1"),
                series("costlens_phase_open_age_seconds", "0x30 0+60x29", costlens_phase="forward"),
            ),
            labels={"costlens_run_id": "r", "costlens_rank": "0", "costlens_phase": "forward"},
            description="Rank 0 has been in forward for 19m 0s: more than ten times the usual. "
            "The job is paid for and makes no progress.",
        ),
        Case(
            "a save that takes long, but not ten times as long as usual",
            (
                *rank(state="checkpoint"),
                series(
                    "costlens_phase_open_age_seconds", "0x30 0+60x29", costlens_phase="checkpoint"
                ),
            ),
        ),
        Case(
            "a save of more than ten times its median",
            (
                *rank(state="checkpoint"),
                series("costlens_stall_age_seconds", "0x40 0+60x19"),
                series(
                    "costlens_phase_open_age_seconds", "0x30 0+60x29", costlens_phase="checkpoint"
                ),
            ),
            labels={"costlens_run_id": "r", "costlens_rank": "0", "costlens_phase": "checkpoint"},
            description="Rank 0 has been in checkpoint for 19m 0s: more than ten times the usual. "
            "The job is paid for and makes no progress.",
        ),
        Case(
            "it was killed while it stood still",
            (
                *rank(until=44),
                series("costlens_stall_age_seconds", "0x30 0+60x14"),
                series("costlens_phase_open_age_seconds", "0x30 0+60x14", costlens_phase="forward"),
            ),
        ),
    ),
)

_GONE = Alert(
    name="CostlensTelemetryGone",
    area="run",
    severity="warning",
    value="time() - rank:costlens_heartbeat:last_time",
    bound="> $heartbeat_age_s",
    scope="""unless on (costlens_run_id, costlens_rank)
rank:costlens_ended:last_time >= rank:costlens_heartbeat:last_time""",
    hold="brief",
    summary=f"Rank {RANK} of run {RUN} is not heard of any more",
    description=f"Rank {RANK} was last heard of {_AGE} ago and never said that it was over: its "
    "process or node is gone, or its telemetry does not get through.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.run.end" }',
    meaning="A rank exports every ten seconds while it lives, and says how it ended when it ends. "
    "This one did neither: it was killed (out of memory, node lost), or nothing that it sends "
    "arrives. After an hour the alert forgets it. A process that is scraped and ends between two "
    "scrapes looks the same: push over OTLP instead.",
    checks=(
        "`costlens report RUN`: its records do not go through the back-end. A rank whose heartbeat "
        "is as old there is dead (`lost`), else only its telemetry is.",
        "Dead: the scheduler's word on the job (`sacct`, `kubectl describe pod`) tells who killed "
        "it; exit code 137 is mostly the memory.",
        "Alive: its log has `costlens.export` warnings that name the endpoint; ask that from the "
        "rank's own host.",
    ),
    queries=(
        Query(
            "Ranks by the time they were last heard of",
            "promql",
            'time() - rank:costlens_heartbeat:last_time{costlens_run_id="$run"}',
        ),
        Query(
            "The last words of the run",
            "logql",
            '{service_name=~".+"} | costlens_run_id="$run" | costlens_rank="$rank"',
        ),
    ),
    cases=(
        Case(
            "a rank is killed, the other goes on",
            (*rank(0, until=20), *rank(1)),
            at="30m",
            labels={"costlens_run_id": "r", "costlens_rank": "0"},
            description="Rank 0 was last heard of 10m 0s ago and never said that it was over: its "
            "process or node is gone, or its telemetry does not get through.",
        ),
        Case(
            "the attempt after the killed one goes on as other series",
            (
                *rank(0, until=20),
                series("costlens_heartbeat_time_seconds", "_x25 1500+60x34", instance="r/2/0"),
            ),
            at="40m",
        ),
        Case("an attempt that said it was over", rank(0, until=20, then="failed"), at="30m"),
        Case(
            "the second attempt is killed after the first one failed",
            (
                *rank(0, until=10, then="failed"),
                series("costlens_heartbeat_time_seconds", "_x15 900+60x5", instance="r/2/0"),
                series("costlens_run_state", "_x15 0x5", instance="r/2/0", costlens_state="failed"),
            ),
            at="30m",
            labels={"costlens_run_id": "r", "costlens_rank": "0"},
            description="Rank 0 was last heard of 10m 0s ago and never said that it was over: its "
            "process or node is gone, or its telemetry does not get through.",
        ),
        Case("forgotten after an hour", rank(0, until=20), at="90m"),
    ),
)

_MISSING = Alert(
    name="CostlensRanksMissing",
    area="run",
    severity="critical",
    value="""max by (costlens_run_id) (costlens_run_ranks)
- max by (costlens_run_id) (costlens_run_ranks_reporting)""",
    bound="> 0",
    scope="and on (costlens_run_id) max by (costlens_run_id) (rank:costlens_training:ratio_rate5m)",
    hold="brief",
    summary=f"Ranks of run {RUN} are missing",
    description="{{ $value }} of the ranks that were launched no longer write their record; the "
    "others wait for them, and are paid for.",
    dashboard="run",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.rank.period" }'
    " | by(span.costlens.rank)",
    meaning="Rank 0 reads the records of all ranks. Some of those that the job was launched with "
    "have fallen silent without ending by their own word: the job will hang in its next collective "
    "until that times out.",
    checks=(
        "Which? `costlens report RUN` lists the missing ranks; the first query shows who is "
        "silent, the second one where each of them ran.",
        "Do they share a host? Then the node is lost; drain it and start the job again: it resumes "
        "at the newest checkpoint.",
        "Else look for what killed the process: the scheduler's word, the kernel's log for an "
        "out-of-memory kill.",
    ),
    queries=(
        Query(
            "Ranks, the one that is silent for longest on top",
            "promql",
            'sort_desc(time() - rank:costlens_heartbeat:last_time{costlens_run_id="$run"})',
        ),
        Query(
            "Where the ranks ran in the last hour",
            "promql",
            "max by (costlens_rank, host_name) "
            '(last_over_time(costlens_run_info{costlens_run_id="$run"}[1h]))',
        ),
    ),
    cases=(
        Case(
            "one of eight",
            (*rank(), gauge("costlens_run_ranks", 8), gauge("costlens_run_ranks_reporting", 7)),
            labels={"costlens_run_id": "r"},
            description="1 of the ranks that were launched no longer write their record; the "
            "others wait for them, and are paid for.",
        ),
        Case(
            "all there",
            (*rank(), gauge("costlens_run_ranks", 8), gauge("costlens_run_ranks_reporting", 8)),
        ),
    ),
)

_LOOP = Alert(
    name="CostlensRestartLoop",
    area="run",
    severity="critical",
    value="max by (costlens_run_id) (last_over_time(costlens_restart_loop[$rare]))",
    bound=">= $restart_loop",
    summary=f"Run {RUN} fails again and again at the same place",
    description="{{ $value }} attempts in a row ended badly without getting any further. Each one "
    "is paid for, from its start-up to the step at which it dies.",
    dashboard="reliability",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.run.end" }'
    " | select(span.costlens.attempt, span.error.type, span.costlens.step.end)",
    meaning="The attempts end at nearly the same step, or make none: restarting will not help.",
    checks=(
        "`costlens report RUN` shows error and step of each attempt. The same error each time: it "
        "is the code, the data at that step, or the checkpoint it resumes from.",
        "Stop the requeueing (`scontrol hold`, `backoffLimit`) until it is understood.",
        "Try the checkpoint before (`costlens checkpoints ls URL`), or another node.",
    ),
    queries=(
        Query(
            "How the attempts ended",
            "traceql",
            '{ span.costlens.run.id = "$run" && name = "costlens.run.end" }'
            " | select(span.costlens.attempt, span.error.type, span.costlens.step.end)",
        ),
    ),
    cases=(
        Case(
            "three attempts at one step",
            (gauge("costlens_restart_loop", 3),),
            labels={"costlens_run_id": "r"},
            description="3 attempts in a row ended badly without getting any further. Each one is "
            "paid for, from its start-up to the step at which it dies.",
        ),
        Case(
            "between two of them nobody exports",
            (series("costlens_restart_loop", "0x29 3x10 _x20"),),
            labels={"costlens_run_id": "r"},
            description="3 attempts in a row ended badly without getting any further. Each one is "
            "paid for, from its start-up to the step at which it dies.",
        ),
        Case("an attempt got further", (series("costlens_restart_loop", "3x20 0x40"),)),
    ),
)

ALERTS = (_STALLED, _GONE, _MISSING, _LOOP)

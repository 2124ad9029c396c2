"""What the run itself told: its log, from Loki.

Run, rank and event name are structured metadata there, so that no line has to be parsed.
"""

from __future__ import annotations

from grafana.panel import Panel, logs

__all__ = ["EVENTS", "EVENT_COUNTS", "STALL_EVENTS", "STORE_EVENTS"]

_STREAM = '{service_name=~".+"}'
_RUN = f'{_STREAM} | costlens_run_id="$run" | costlens_rank=~"$rank"'

EVENTS = Panel(
    "What did the run tell?",
    "Events of the chosen ranks, the newest first. A line with a trace id links to the minute it "
    "was told in.",
    "none",
    (logs(_RUN),),
    kind="events",
    width=24,
    height=9,
)
EVENT_COUNTS = Panel(
    "What does it complain about?",
    "Warnings and errors by the name of the event.",
    "none",
    (
        logs(
            f'sum by (event_name) (count_over_time({_RUN} | detected_level=~"warn|error|fatal" '
            "[$__auto]))",
            "{{event_name}}",
        ),
    ),
    width=24,
    decimals=0,
    least=0,
)
STALL_EVENTS = Panel(
    "Where did it stand?",
    "Stalls with the phase, the time and where the training thread stood; and ranks that went "
    "missing.",
    "none",
    (
        logs(
            f'{_RUN} | event_name=~"costlens.stalled|costlens.recovered|costlens.ranks.missing|'
            'costlens.ranks.back|costlens.loader.worker_died|costlens.gpu.*"'
        ),
    ),
    kind="events",
    width=24,
)
STORE_EVENTS = Panel(
    "What happened to checkpoints?",
    "Saves, resumes, and checkpoints that were refused, with the reason.",
    "none",
    (logs(f'{_RUN} | event_name=~"costlens.checkpoint.*"'),),
    kind="events",
    width=16,
)

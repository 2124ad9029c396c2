"""The rules about all ranks of a job, in one table; a new one is a file here and a line in it."""

from __future__ import annotations

from costlens.diagnose.finding import JobRule
from costlens.diagnose.job import (
    communication,
    faulty_node,
    gang_wait,
    idle_devices,
    queue_wait,
    starvation,
    straggler,
    throttling,
)

__all__ = ["JOB_RULES"]

JOB_RULES: tuple[JobRule, ...] = (
    faulty_node.RULE,
    throttling.RULE,
    straggler.RULE,
    communication.RULE,
    *starvation.RULES,
    idle_devices.RULE,
    gang_wait.RULE,
    queue_wait.RULE,
)

"""What a rule says: a finding, or that it cannot tell and which signal it lacks.

A finding names the share of paid time that mending the cause would save; money follows from it and
the price alone, so that no rule knows a price.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["Abstention", "Finding", "JobRule", "Place", "Remedy", "Rule", "Severity", "Verdict"]


class Severity(str, Enum):
    """How soon somebody should look."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do about a finding.

    Args:
        text: What to do, with the exact knob, a sentence.
        saved_share: Share (0 to 1) of the paid time in the evidence that it would save; None where
            that cannot be told.
    """

    text: str
    saved_share: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Hardware that a finding is about, as schedulers and drivers name it.

    Args:
        host_name: The node.
        gpu_uuid: The device; None where it is the node as a whole.
        pci_id: Where the device is plugged in.
    """

    host_name: str
    gpu_uuid: str | None = None
    pci_id: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause of slowness, waste or danger.

    Args:
        name: The cause, snake_case; one word per cause, the same in metrics, logs and the runbook.
        severity: How soon somebody should look.
        saved_share: Share (0 to 1) of the paid time in the evidence that mending the cause would
            save; None where it is a danger and not a loss, or cannot be told.
        evidence: The measurements it follows from, a sentence each, with units.
        remedies: What would help, the best first.
        traceql: A search for spans that show it; None where no span does.
        ranks: Whom it is about, from a rule about the job; empty for all that were looked at.
        places: Hardware to avoid.
        is_least: Whether ``saved_share`` is the least that mending saves, and no estimate.
    """

    name: str
    severity: Severity
    saved_share: float | None
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    traceql: str | None = None
    ranks: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    is_least: bool = False


@dataclass(frozen=True, slots=True)
class Abstention:
    """A rule cannot tell.

    Args:
        name: The finding that it would have been.
        missing: The signal that is missing, and how to get it, a phrase.
    """

    name: str
    missing: str


# None: the rule has looked, and there is nothing to find.
Verdict: TypeAlias = "Finding | Abstention | None"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about one rank.

    Args:
        name: The finding it can make.
        judge: Looks at evidence.
        needs_steps: Whether it says something of the steps, so that it is asked only where there
            are enough of them (``judge.MIN_ITERATIONS``).
    """

    name: str
    judge: Callable[[Evidence], Verdict]
    needs_steps: bool = True


@dataclass(frozen=True, slots=True)
class JobRule:
    """A rule about all ranks of an attempt; its share is one of the paid time of all of them.

    Args:
        name: The finding it can make.
        judge: Looks at evidence of the whole job.
        needs_steps: As for :class:`Rule`, of every rank.
    """

    name: str
    judge: Callable[[JobEvidence], Verdict]
    needs_steps: bool = True

"""How rules put what they found: a loss that mending saves, or a danger that costs nothing yet."""

from __future__ import annotations

from collections.abc import Sequence

from costlens.diagnose.finding import Finding, Place, Remedy, Severity

__all__ = ["danger", "gibibytes", "loss", "milliseconds"]

_GIBIBYTE = 2**30
_MS_PER_S = 1000


def loss(
    name: str,
    saved_share: float,
    evidence: Sequence[str],
    remedies: Sequence[Remedy],
    places: Sequence[Place] = (),
    ranks: Sequence[int] = (),
) -> Finding:
    """Return a finding of what costs money now.

    Args:
        name: The cause.
        saved_share: Share (0 to 1) of the paid time that mending it saves.
        evidence: What it follows from, a sentence each.
        remedies: What would help; put in order here, what saves most first.
        places: Hardware to avoid.
        ranks: Whom it is about, from a rule about the job.
    """
    ordered = sorted(remedies, key=lambda remedy: -(remedy.saved_share or 0.0))
    return Finding(
        name=name,
        severity=Severity.WARNING,
        saved_share=saved_share,
        evidence=tuple(evidence),
        remedies=tuple(ordered),
        traceql=_search(name),
        ranks=tuple(ranks),
        places=tuple(places),
    )


def danger(
    name: str,
    severity: Severity,
    evidence: Sequence[str],
    remedies: Sequence[str],
    places: Sequence[Place] = (),
    ranks: Sequence[int] = (),
) -> Finding:
    """Return a finding of what may stop the run, or cannot be put into money.

    Args:
        name: The cause.
        severity: How soon somebody should look.
        evidence: What it follows from, a sentence each.
        remedies: What would help, the best first.
        places: Hardware to avoid.
        ranks: Whom it is about, from a rule about the job.
    """
    return Finding(
        name=name,
        severity=severity,
        saved_share=None,
        evidence=tuple(evidence),
        remedies=tuple(Remedy(text) for text in remedies),
        traceql=_search(name),
        ranks=tuple(ranks),
        places=tuple(places),
    )


def milliseconds(seconds: float) -> str:
    """Return a duration in ms, with as many digits as tell something."""
    value = seconds * _MS_PER_S
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def gibibytes(num_bytes: float) -> str:
    """Return a size in GiB."""
    return f"{num_bytes / _GIBIBYTE:.1f} GiB"


def _search(name: str) -> str:
    return f'{{ name = "costlens.rank.period" && span.costlens.findings =~ ".*{name}.*" }}'

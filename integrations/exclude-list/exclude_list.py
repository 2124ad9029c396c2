"""Turns findings about hardware into what a scheduler understands: nodes to leave out.

    costlens report RUN --json | python exclude_list.py --for slurm
    --exclude=node-7

Reads the merged records of one run or of several (files, or standard input). Needs nothing but
Python. Says on standard error why a node is on the list, and which finding it could not place.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULTS = ("hardware_fault", "faulty_node")
"""Findings that speak of broken hardware; others that name a place may be asked for."""

TAINT = "costlens.io/hardware-fault"

# Names go into command lines: nothing that a shell or a scheduler would read as more than a name.
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_VALUE = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_VALUE = 63


@dataclass
class Node:
    """A node to leave out.

    Args:
        name: As the scheduler calls it.
        findings: What was found on it.
        gpus: Its devices that were named, by UUID, each with its PCI address where it is known.
    """

    name: str
    findings: list[str] = field(default_factory=list)
    gpus: dict[str, str | None] = field(default_factory=dict)


def list_nodes(
    records: Iterable[Mapping[str, Any]], names: Iterable[str] = FAULTS
) -> tuple[list[Node], list[str]]:
    """Return the nodes that findings blame, and why some could not be placed.

    Args:
        records: Merged records, as ``costlens report --json`` prints them.
        names: The findings that count.
    """
    nodes: dict[str, Node] = {}
    problems: list[str] = []
    for record in records:
        known = _scheduler_names(record)
        for finding in record.get("findings", ()):
            if finding["name"] not in names:
                continue
            for place in finding.get("places", ()):
                host = place["host_name"]
                name = known.get(host, host)
                if not _NODE.fullmatch(name):
                    problems.append(f"{finding['name']}: {name!r} is no name of a node")
                    continue
                node = nodes.setdefault(name, Node(name))
                if finding["name"] not in node.findings:
                    node.findings.append(finding["name"])
                if place.get("gpu_uuid"):
                    node.gpus[place["gpu_uuid"]] = place.get("pci_id")
    return sorted(nodes.values(), key=lambda node: node.name), problems


def _scheduler_names(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what the scheduler calls each host: a pod calls itself something else."""
    jobs = ((rank["host_name"], rank.get("job") or {}) for rank in record.get("ranks", ()))
    return {host: job["node"] for host, job in jobs if job.get("node")}


def tell_slurm(nodes: list[Node]) -> list[str]:
    """Return the option of ``sbatch`` and ``srun``; nothing where all is well."""
    return [f"--exclude={','.join(node.name for node in nodes)}"] if nodes else []


def tell_kubernetes(nodes: list[Node]) -> list[str]:
    """Return a command a node that keeps new pods off it."""
    commands = []
    for node in nodes:
        value = _VALUE.sub("-", next(iter(node.gpus), node.findings[0]))[:_MAX_VALUE].strip("-_.")
        commands.append(f"kubectl taint nodes {node.name} {TAINT}={value}:NoSchedule --overwrite")
    return commands


def tell_json(nodes: list[Node]) -> list[str]:
    """Return a list for other tools."""
    told = [
        {
            "node": node.name,
            "findings": node.findings,
            "gpus": [{"uuid": uuid, "pci_id": pci_id} for uuid, pci_id in node.gpus.items()],
        }
        for node in nodes
    ]
    return [json.dumps(told, indent=2)]


_TELL = {"slurm": tell_slurm, "kubernetes": tell_kubernetes, "json": tell_json}


def main(arguments: list[str] | None = None) -> int:
    """Print the list; 0 where it could be made, whether or not a node is on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="merged records; standard input by default")
    parser.add_argument("--for", dest="target", choices=sorted(_TELL), default="json")
    parser.add_argument(
        "--also", action="append", default=[], help="another finding that counts, as throttling"
    )
    options = parser.parse_args(arguments)
    try:
        records = [json.loads(text) for text in _read(options.files)]
    except (OSError, ValueError) as error:
        print(f"exclude_list: {error}; pass what `costlens report --json` prints", file=sys.stderr)
        return 1
    nodes, problems = list_nodes(records, (*FAULTS, *options.also))
    for node in nodes:
        gpus = ", ".join(uuid + (f" at {pci}" if pci else "") for uuid, pci in node.gpus.items())
        told = f"{node.name}: {', '.join(node.findings)}" + (f" ({gpus})" if gpus else "")
        print(told, file=sys.stderr)
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    for line in _TELL[options.target](nodes):
        print(line)
    return 0


def _read(files: list[str]) -> Iterable[str]:
    if not files:
        yield sys.stdin.read()
    for name in files:
        yield Path(name).read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())

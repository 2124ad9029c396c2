"""A real Slurm of one node in a folder: controller, node and munge as processes of the caller.

The tests in tests/slurm start it. By hand, it stays up until Ctrl-C:

    python integrations/slurm/testbed/cluster.py
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Cluster", "find_missing", "run_cluster"]

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
_SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_READY_S = 60.0
_STOP_S = 20.0
_OVER = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL"})
_FIELD = re.compile(r"(?:^|\s)([A-Za-z/:]+)=(\S*)")


def find_missing() -> list[str]:
    """Return the programs of Slurm that this machine lacks."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_SYSTEM_PATH) is None]


class Cluster:
    """A running cluster, and the commands that talk to it.

    Args:
        folder: Holds its configuration, state and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SLURM")
        }
        self.environ |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _SYSTEM_PATH}

    def run(self, *command: str | Path, **environ: str) -> str:
        """Return what a command prints; fails where it fails.

        Args:
            *command: Program and arguments.
            **environ: Variables beside the cluster's own.
        """
        done = subprocess.run(
            [str(part) for part in command],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}\n{self.tail()}")
        return done.stdout.strip()

    def submit(self, *arguments: str | Path, **environ: str) -> str:
        """Submit a job with these arguments of sbatch and return its id."""
        return self.run("sbatch", "--parsable", *arguments, **environ).partition(";")[0]

    def show(self, job_id: str) -> dict[str, str]:
        """Return what the controller knows of a job, times in Unix seconds."""
        text = self.run("scontrol", "show", "job", job_id, "--oneliner", SLURM_TIME_FORMAT="%s")
        return dict(_FIELD.findall(text))

    def times(self, job_id: str) -> tuple[float, float, float]:
        """Return when a job was submitted, eligible and started, in Unix seconds."""
        shown = self.show(job_id)
        names = ("SubmitTime", "EligibleTime", "StartTime")
        submit_s, eligible_s, start_s = (float(shown[name]) for name in names)
        return submit_s, eligible_s, start_s

    def wait(self, job_id: str, *states: str, timeout_s: float = 120.0) -> str:
        """Return the state of a job once it is one of these; by default, once it is over."""
        wanted, deadline_s = frozenset(states) or _OVER, time.monotonic() + timeout_s
        while True:
            state = self.show(job_id)["JobState"]
            if state in wanted:
                return state
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"job {job_id} is still {state}\n{self.tail()}")
            time.sleep(0.2)

    def tail(self) -> str:
        """Return the ends of the logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-600:]}" for log in logs)


@contextlib.contextmanager
def run_cluster() -> Iterator[Cluster]:
    """Start a cluster in a new folder, and stop it and remove the folder afterwards."""
    # Short: the path of munge's socket must stay below 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Cluster(folder)
    _configure(folder)
    services: list[subprocess.Popen[bytes]] = []
    try:
        services.append(_start(cluster, "munged", *_munge_options(folder)))
        _await((folder / "munge.socket").exists, "munged", cluster)
        services.append(_start(cluster, "slurmctld", "-D", "-i"))
        services.append(_start(cluster, "slurmd", "-D"))
        _await(lambda: _is_idle(cluster), "the node", cluster)
        yield cluster
    finally:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            cluster.run("scancel", "--user", getpass.getuser(), "--full", "--signal=KILL")
        for service in reversed(services):
            _stop(service)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    template = Path(__file__).with_name("slurm.conf").read_text(encoding="utf-8")
    controller_port, node_port = _free_ports()
    text = template.format(
        host=platform.node().partition(".")[0],
        user=getpass.getuser(),
        folder=folder,
        controller_port=controller_port,
        node_port=node_port,
    )
    (folder / "slurm.conf").write_text(text, encoding="utf-8")


def _munge_options(folder: Path) -> list[str]:
    named = {
        "key-file": "munge.key",
        "socket": "munge.socket",
        "pid-file": "munged.pid",
        "log-file": "munged.log",
        "seed-file": "munged.seed",
    }
    # Forced: it does not trust a folder below one that everybody may write to, such as /tmp.
    return ["--foreground", "--force", *(f"--{name}={folder / at}" for name, at in named.items())]


def _start(cluster: Cluster, name: str, *options: str) -> subprocess.Popen[bytes]:
    program = shutil.which(name, path=_SYSTEM_PATH) or name
    with (cluster.folder / f"{name}.out.log").open("wb") as log:
        return subprocess.Popen([program, *options], env=cluster.environ, stdout=log, stderr=log)


def _stop(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()


def _await(is_ready: Callable[[], bool], what: str, cluster: Cluster) -> None:
    deadline_s = time.monotonic() + _READY_S
    while not is_ready():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come up\n{cluster.tail()}")
        time.sleep(0.1)


def _is_idle(cluster: Cluster) -> bool:
    try:
        return cluster.run("sinfo", "--noheader", "--format=%T") == "idle"
    except RuntimeError:
        return False


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            listener.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


if __name__ == "__main__":
    missing = find_missing()
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; see install.sh beside this file")
    with run_cluster() as running, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={running.environ['SLURM_CONF']}", flush=True)
        while True:
            time.sleep(3600)

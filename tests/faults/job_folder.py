"""A plain loop whose run folder fails: `job_folder.py KIND`, with `COSTLENS_DIR=planted://…`.

The store is an fsspec plug-in of its own, kept in memory. KIND says when it refuses: `start`,
`middle` or `always`; or how it dawdles: `slow` takes 3 s for each write after a while, `stuck`
never comes back. It prints what `finish` returned, what the store then holds, and how long the
loop took.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import sys
import time

import fsspec
from fsspec.spec import AbstractFileSystem

import costlens

SLOW_S = 3.0
STORE: dict[str, bytes] = {}
fault = {"refuses": False, "delay_s": 0.0}


class Planted(AbstractFileSystem):
    """An object store that refuses or dawdles as it is told."""

    protocol = "planted"
    cachable = False

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        """Write an object."""
        time.sleep(fault["delay_s"])
        if fault["refuses"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if mode == "create" and path in STORE:
            raise FileExistsError(path)
        STORE[path] = value

    def cat_file(self, path, start=None, end=None, **kwargs):
        """Read an object."""
        if path not in STORE:
            raise FileNotFoundError(path)
        return STORE[path]

    def rm_file(self, path):
        """Remove an object."""
        STORE.pop(path, None)

    def ls(self, path, detail=True, **kwargs):
        """List a folder."""
        prefix = f"{path}/"
        found = {}
        for key, value in STORE.items():
            if key.startswith(prefix):
                name, _, rest = key.removeprefix(prefix).partition("/")
                kind = "directory" if rest else "file"
                found[prefix + name] = {"name": prefix + name, "type": kind, "size": len(value)}
        return [*found.values()]


def train(run: costlens.Run, num_steps: int) -> None:
    """Train steps of 10 ms."""
    for _ in range(num_steps):
        with run.iteration(samples=4):
            time.sleep(0.01)


def main(kind: str) -> None:
    """Train 50 steps before, while and after the store fails."""
    fsspec.register_implementation("planted", Planted)
    fault["refuses"] = kind in {"start", "always"}
    fault["delay_s"] = 3600.0 if kind == "stuck" else 0.0
    run = costlens.start("folder")
    start_s = time.monotonic()
    train(run, 50)
    fault["refuses"] = kind in {"middle", "always"}
    fault["delay_s"] = SLOW_S if kind == "slow" else fault["delay_s"]
    train(run, 50)
    fault["refuses"] = kind == "always"
    train(run, 50)
    loop_s = time.monotonic() - start_s
    atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
    print("ENDING", time.monotonic(), flush=True)
    record = run.finish()
    kept = {
        path.rsplit("/", 1)[-1]: json.loads(data)
        for path, data in STORE.items()
        if "/record-" in path
    }
    lines = [
        line for path, data in STORE.items() if "/windows-" in path for line in data.splitlines()
    ]
    print(
        json.dumps(
            {
                "finished": json.loads(record.model_dump_json()) if record else None,
                "kept": kept,
                "windows": [json.loads(line)["index"] for line in lines],
                "loop_s": loop_s,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])

"""A plain loop in a small file system of its own: `job_disk.py full|read-only|vanished FOLDER`.

It prints what `finish` returned and the names of the records that are there then.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import costlens


def train(run: costlens.Run) -> None:
    """Train 50 steps of 10 ms."""
    for _ in range(50):
        with run.iteration(samples=4):
            time.sleep(0.01)


def remount(folder: Path, option: str) -> None:
    """Make the file system writable (rw) or not (ro)."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def main(kind: str, folder: Path) -> None:
    """Train before, while and after the disk fails."""
    if kind != "vanished":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True)
    os.environ["COSTLENS_DIR"] = str(folder / "runs")
    filler = folder / "filler"
    run = costlens.start("disk")
    assert run.attempt == 1
    train(run)
    if kind == "full":
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
    elif kind == "read-only":
        remount(folder, "ro")
    else:
        shutil.rmtree(folder / "runs")
    train(run)
    if kind == "full":
        filler.unlink()
    elif kind == "read-only":
        remount(folder, "rw")
    train(run)
    atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
    print("ENDING", time.monotonic(), flush=True)
    record = run.finish()
    assert record is not None
    paths = sorted(folder.glob("runs/*/record-*"))
    print(
        json.dumps(
            {
                "finished": json.loads(record.model_dump_json()),
                "kept": {path.name: json.loads(path.read_text()) for path in paths},
                "others": [p.name for p in folder.rglob("*.tmp")],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

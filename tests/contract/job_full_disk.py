"""Three saves by the writer's thread into a small file system that is full for the second one.

``job_full_disk.py FOLDER`` mounts it; prints, after each save, how it ended and what is there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic_ns, time

from costlens.protect.commit import Committer
from costlens.protect.manager import Keeper
from costlens.protect.manifest import CheckpointName
from costlens.protect.shelf import Shelf
from costlens.protect.snapshot import HostBuffer
from costlens.protect.writer import Published, SaveJob, Writer
from costlens.storage.store import Store
from tests.contract.saves import RUN, newest_step, snapshot_at


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def main(folder: Path) -> None:
    """Save three times, keeping two."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
    store, filler = Store(folder / "checkpoints"), folder / "filler"
    shelf = Shelf(store, RUN)
    facts = {"run_id": RUN, "costlens_version": "0"}
    keeper = Keeper(Committer(store, RUN), shelf, 2, lambda: facts)
    writer, buffer = Writer(monotonic_ns), HostBuffer()
    for step in (1, 2, 3):
        if step == 2:
            fill(filler)
        name, snapshot = CheckpointName.new(step, 1, time()), snapshot_at(step, buffer)

        def publish(name: CheckpointName = name) -> Published:
            return keeper.publish(name, "interval", snapshot, time())  # noqa: B023 - waited for

        assert writer.submit(SaveJob(name, "interval", 0, monotonic_ns(), publish))
        assert writer.wait(60)
        [result] = writer.take_results()
        number = getattr(result.error, "errno", None)
        told = [step, number, newest_step(shelf), len(shelf.unfinished())]
        print(json.dumps([*told, [path.name for path in folder.rglob(".costlens-*")]]), flush=True)
        filler.unlink(missing_ok=True)
    assert writer.close(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

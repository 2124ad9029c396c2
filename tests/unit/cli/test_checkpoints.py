"""``costlens checkpoints``: what is there, what is whole, what goes, what a resume takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from costlens.protect.commit import Committer, folder_of, manifest_key
from costlens.protect.manifest import CheckpointName
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from tests.contract.saves import RUN, manifest_of, newest_step, save, snapshot_at
from tests.unit.cli.conftest import Cli


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture(name="store")
def _store(root: Path) -> Store:
    return Store(root)


def flip(root: Path, name: CheckpointName) -> None:
    """Change one bit of its data."""
    path = root / folder_of(RUN, name) / "r00000-00000"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)


def seen(cli: Cli, *arguments: str) -> dict[str, Any]:
    """Return what a command says of the one run there is."""
    [run] = json.loads(cli("checkpoints", *arguments, "--json")[1])["runs"]
    assert run["run_id"] == RUN
    return run


def test_ls_shows_them_and_what_a_resume_would_choose(cli: Cli, store: Store, root: Path) -> None:
    """The newest that is whole, and why not a newer one; the same as a resume then does."""
    for step in (10, 20):
        save(store, step)
    lost = save(store, 30)
    (root / folder_of(RUN, lost) / "r00000-00000").unlink()
    code, out, err = cli("checkpoints", "ls", str(root))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"run {RUN}"
    assert "broken: r00000-00000 is missing" in out
    assert "a resume would choose step 20: 1 newer one is passed over: r00000-00000 is mi" in out
    run = seen(cli, "ls", str(root))
    assert [(each["step"], each["health"]) for each in run["checkpoints"]] == [
        *((30, "broken"), (20, "whole"), (10, "whole")),
    ]
    assert run["resume"]["step"] == newest_step(Shelf(store, RUN)) == 20
    assert run["checkpoints"][1]["num_bytes"] == sum(
        store.sizes(folder_of(RUN, Shelf(store, RUN).names()[1])).values()
    )
    # A resume has marked it since.
    assert seen(cli, "ls", str(root))["checkpoints"][0]["health"] == "rejected"


def test_verify_reads_what_ls_does_not(cli: Cli, store: Store, root: Path) -> None:
    """A flipped bit has the right size: only `verify` finds it, and says so by its exit code."""
    save(store, 10)
    assert cli("checkpoints", "verify", str(root))[0] == 0
    flip(root, save(store, 20))
    assert seen(cli, "ls", str(root))["resume"]["step"] == 20
    code, out, _ = cli("checkpoints", "verify", str(root))
    assert code == 1
    assert "its digest differs" in out
    run = seen(cli, "verify", str(root))
    assert run["resume"]["step"] == newest_step(Shelf(store, RUN)) == 10
    assert [each["is_verified"] for each in run["checkpoints"]] == [False, True]


def test_prune_keeps_two_whole_ones_and_removes_what_nobody_can_use(
    cli: Cli, store: Store, root: Path
) -> None:
    """Old ones, broken ones behind a whole one, and rests of kills; a dry run removes nothing."""
    names = [save(store, step) for step in (10, 20, 30, 40, 50)]
    (root / folder_of(RUN, names[2]) / "r00000-skeleton").unlink()  # 30
    (root / folder_of(RUN, names[4]) / "r00000-skeleton").unlink()  # 50
    begun = CheckpointName.new(60, 1, time.time() - 25 * 3600)
    young = CheckpointName.new(61, 1, time.time())
    for name in (begun, young):
        snapshot = snapshot_at(1)
        Committer(store, RUN).write_shard(name, 0, snapshot.skeleton, snapshot.view())
    assert len(seen(cli, "ls", str(root))["unfinished"]) == 2
    arguments = ("checkpoints", "prune", str(root))
    before = store.list()
    expected = [str(name) for name in (names[2], names[0], begun)]
    answer = json.loads(cli(*arguments, "--dry-run", "--json")[1])
    assert answer == {"is_dry_run": True, "removed": {RUN: expected}}
    assert store.list() == before
    code, out, _ = cli(*arguments)
    assert (code, out.splitlines()) == (
        0,
        [f"run {RUN}", *(f"removed {each}" for each in expected)],
    )
    shelf = Shelf(store, RUN)
    assert [name.step for name in shelf.names()] == [50, 40, 20]
    assert shelf.unfinished() == [young]
    assert newest_step(shelf) == 40
    assert cli(*arguments)[1].splitlines()[1] == "removed nothing"


def test_prune_removes_nothing_where_little_is_whole(cli: Cli, store: Store, root: Path) -> None:
    """With one whole checkpoint even the broken ones stay: a person may want to mend them."""
    for step in (10, 20):
        (root / manifest_key(RUN, save(store, step))).write_text("{}")
    save(store, 30)
    assert cli("checkpoints", "prune", str(root))[1].splitlines()[1] == "removed nothing"
    assert cli("checkpoints", "prune", str(root), "--keep", "1")[0] == 2


def test_the_variable_names_the_place_and_no_secret_is_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without either it is a usage error; an empty place is told without the user's key."""
    code, _, err = cli("checkpoints", "ls")
    assert (code, err) == (2, "costlens: name a place, or set COSTLENS_CHECKPOINT_URL\n")
    monkeypatch.setenv("COSTLENS_CHECKPOINT_URL", "memory://me:s3cret@nothing/here")
    code, _, err = cli("checkpoints", "ls")
    assert code == 1
    assert "there are no checkpoints in memory://***@nothing/here" in err
    assert "s3cret" not in err


def test_each_run_is_shown_by_its_own_id(cli: Cli, store: Store, root: Path) -> None:
    """Also one whose id is no folder name; what else lies there is no run."""
    odd = "team/gpt small"
    save(store, 10, odd)
    save(store, 20)
    store.put("run.json", b"{}")
    store.put(".costlens/x/record-1-0.json", b"{}")
    runs = json.loads(cli("checkpoints", "ls", str(root), "--json")[1])["runs"]
    assert {run["run_id"]: run["resume"]["step"] for run in runs} == {odd: 10, RUN: 20}
    one = json.loads(cli("checkpoints", "ls", str(root), "--run", odd, "--json")[1])["runs"]
    assert [run["run_id"] for run in one] == [odd]
    code, _, err = cli("checkpoints", "ls", str(root), "--run", "nobody")
    assert code == 1
    assert "no checkpoints of run 'nobody'" in err


def test_no_torch_is_needed(store: Store, root: Path) -> None:
    """A laptop can look at a cluster's checkpoints: nothing of the command imports torch."""
    save(store, 10)
    script = (
        "import sys\nsys.modules['torch'] = None\n"
        f"sys.argv = ['costlens', 'checkpoints', 'verify', {str(root)!r}]\n"
        "from costlens.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified" in done.stdout


def test_what_a_fresh_start_left_is_shown_and_counted_apart(
    cli: Cli, store: Store, root: Path
) -> None:
    """A lower step of a training begun later is next; `prune` keeps two of it and two of before."""
    for step in (100, 200, 300):
        save(store, step)
    began = "29990101T000000"
    for step in (10, 20, 30):
        name = CheckpointName(step, 2, began, f"{step:08x}")
        snapshot = snapshot_at(step)
        committer = Committer(store, RUN)
        shard = committer.write_shard(name, 0, snapshot.skeleton, snapshot.view())
        manifest = manifest_of(name, shard).model_copy(update={"lineage": began})
        committer.commit(name, manifest)
    run = seen(cli, "ls", str(root))
    assert run["resume"]["step"] == newest_step(Shelf(store, RUN)) == 30
    assert [(each["step"], each["is_left_behind"]) for each in run["checkpoints"]] == [
        *((300, True), (200, True), (100, True)),
        *((30, False), (20, False), (10, False)),
    ]
    assert "whole, left behind by a fresh start" in cli("checkpoints", "ls", str(root))[1]
    cli("checkpoints", "prune", str(root), "--keep", "2")
    assert [name.step for name in Shelf(store, RUN).names()] == [300, 200, 30, 20]

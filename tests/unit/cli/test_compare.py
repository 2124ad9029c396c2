"""``costlens compare``: two runs, a gate for CI, a saved baseline."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from costlens.cli.exit_codes import EXIT_WORSE
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.runs import make_rank, make_windows, noisy_times
from tests.unit.cli.conftest import Cli


def write_run(run_dir: str, run_id: str, step_times_s: list[float]) -> None:
    """Write a run as one is left behind: its record, and its windows in segments."""
    windows = make_windows(step_times_s)
    record = make_rank(windows)
    record = record.model_copy(
        update={
            "run": record.run.model_copy(update={"id": run_id, "name": run_id}),
            "windows": windows[-5:],
        }
    )
    folder = RunFolder(Store(run_dir), run_id)
    folder.claim_attempt(run_id, {})
    folder.write_record(1, 0, record.model_dump_json(exclude_none=True).encode())
    lines = [window.model_dump_json(exclude_defaults=True).encode() for window in windows]
    folder.append_segment(1, 0, 0, lines[:20])
    folder.append_segment(1, 0, 1, [b"{torn", *lines[20:-2]])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the folder with a run, one like it, and one that is a fifth slower."""
    run_dir = tmp_path / "costlens-runs"
    write_run(str(run_dir), "before", noisy_times(1, 50))
    write_run(str(run_dir), "alike", noisy_times(2, 50))
    write_run(str(run_dir), "slower", noisy_times(3, 50, mean_s=0.12))
    return run_dir


def test_two_like_runs_pass(cli: Cli, runs: Path) -> None:
    """No figure differs, and the gate lets them through."""
    code, out, err = cli("compare", "before", "alike", "--fail-above", "5%")
    assert (code, err) == (0, "")
    assert "B against A: no figure differs; none is worse by more than the 5.0 %" in out
    assert "within noise" in out


def test_a_slower_run_fails_with_a_code_of_its_own(cli: Cli, runs: Path) -> None:
    """Exit code 3 is neither an error's nor a misuse's; without a limit it is only told."""
    code, out, _ = cli("compare", "before", "slower", "--fail-above", "5%")
    assert code == EXIT_WORSE
    assert EXIT_WORSE not in {0, 1, 2}
    assert "refused" in out
    assert "worse by more than the 5.0 % that is allowed: time per step" in out
    assert cli("compare", "before", "slower")[0] == 0
    assert cli("compare", "before", "slower", "--fail-above", "50%")[0] == 0
    assert cli("compare", "slower", "before", "--fail-above", "0%")[0] == 0


def test_runs_too_short_to_judge_are_not_called_alike(cli: Cli, tmp_path: Path) -> None:
    """A fifth slower over few windows is refused by the gate, and never "no figure differs"."""
    for run_id, mean_s in (("short", 0.1), ("shorter", 0.12)):
        write_run(str(tmp_path / "costlens-runs"), run_id, noisy_times(1, 6, mean_s=mean_s))
    _, out, _ = cli("compare", "short", "shorter", "--fail-above", "5%")
    assert "no figure is known to differ by more than noise does; worse by more" in out
    assert "no figure differs" not in out


def test_windows_come_from_segments_and_record_once_each(cli: Cli, runs: Path) -> None:
    """Of 50 windows 48 are in segments and 5 in the record: one of start-up is left out."""
    document = json.loads(cli("compare", "before", "alike", "--json")[1])
    assert document["a"]["num_windows"] == 49
    assert document["schema_version"] == "costlens.comparison/1"
    step = next(figure for figure in document["figures"] if figure["name"] == "step_s")
    assert step["a"]["value"] == pytest.approx(0.1, rel=0.03)
    assert 0 < step["noise_a"] < 0.05


@pytest.mark.parametrize(
    "damage",
    [
        {"iteration_mean_s": float("nan")},
        {"iteration_max_s": float("inf")},
        {"phase_ns": {"forward": 10**18}},
        {"counts": {"optimizer_steps": -5}},
        {"start_time": float("nan")},
        {"index": -(2**70)},
    ],
)
def test_an_impossible_window_is_left_out(cli: Cli, runs: Path, damage: dict[str, object]) -> None:
    """Damage in one line of a segment neither ends the comparison nor moves a figure."""
    path = next((runs / "before" / "segments").glob("*-000000.jsonl"))
    lines = path.read_text().splitlines()
    lines[7] = json.dumps({**json.loads(lines[7]), **damage})
    path.write_text("\n".join(lines) + "\n")
    code, out, err = cli("compare", "before", "alike", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["a"]["num_windows"] == 48
    step = next(figure for figure in document["figures"] if figure["name"] == "step_s")
    assert step["a"]["value"] == pytest.approx(0.1, rel=0.03)


def test_json_tells_the_same_story(cli: Cli, runs: Path) -> None:
    """Scripts get every figure with its verdict, and the names of those that are too bad."""
    code, out, _ = cli("compare", "before", "slower", "--fail-above", "0.05", "--json")
    document = json.loads(out)
    assert code == EXIT_WORSE
    assert document["fail_above"] == 0.05
    assert {"step_s", "tokens_per_s", "cost_per_million_tokens"} <= {*document["too_bad"]}


def test_a_baseline_outlives_its_run(cli: Cli, runs: Path, tmp_path: Path) -> None:
    """It is saved from one run, and stands for it in either place, even as a URL."""
    file = tmp_path / "base.json"
    code, out, err = cli("compare", "before", "--save-baseline", str(file))
    assert (code, out) == (0, "")
    assert err == f"before is saved as a baseline in {file}\n"
    direct = json.loads(cli("compare", "before", "slower", "--json")[1])
    for arguments in (("slower", "--baseline", str(file)), (f"file://{file}", "slower")):
        assert json.loads(cli("compare", *arguments, "--json")[1]) == direct
    remote = f"memory://{uuid.uuid4().hex}/base.json"
    assert cli("compare", "before", "alike", "--save-baseline", remote)[0] == 0
    code, out, _ = cli("compare", "alike", "--baseline", remote, "--json")
    assert (code, json.loads(out)["a"]["run_id"]) == (0, "alike")


def test_the_newest_run_is_judged_by_a_baseline(cli: Cli, runs: Path, tmp_path: Path) -> None:
    """In CI nobody has to know the id of the run that was just made."""
    file = str(tmp_path / "base.json")
    cli("compare", "before", "--save-baseline", file)
    document = json.loads(cli("compare", "--baseline", file, "--json")[1])
    assert document["b"]["run_id"] in {"alike", "before", "slower"}


def test_runs_are_found_by_the_path_or_url_of_their_folder(cli: Cli, runs: Path) -> None:
    """Also where they lie in different places, on a store as on a disk."""
    url = f"memory://{uuid.uuid4().hex}/runs"
    write_run(url, "far", noisy_times(1, 50))
    code, out, err = cli("compare", str(runs / "before"), f"{url}/far", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["a"]["run_id"], document["b"]["run_id"]) == ("before", "far")
    code, out, _ = cli("report", f"{url}/far", "--json")
    assert (code, json.loads(out)["run"]["id"]) == (0, "far")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 2, "two runs are compared, so name both"),
        (("before",), 2, "--save-baseline FILE; got 1"),
        (("a", "b", "c"), 2, "got 3"),
        (("before", "alike", "--fail-above", "5"), 2, "write a share such as 5% or 0.05"),
        (("before", "nowhere"), 1, "no run 'nowhere'"),
        (("before", "memory://none/at/all"), 1, "there is no run in memory://none/at/all"),
        (("before", "./gone.json"), 1, "gone.json"),
    ],
)
def test_misuse_says_what_is_right(
    cli: Cli, runs: Path, in_tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """A usage error is 2 and a missing run 1; neither is a traceback."""
    seen, out, err = cli("compare", *arguments)
    assert (seen, out) == (code, "")
    assert told in err


def test_a_gate_that_can_judge_nothing_does_not_pass(cli: Cli, tmp_path: Path) -> None:
    """Runs without a single figure in common are a failure, and not a success."""
    run_dir = str(tmp_path / "costlens-runs")
    write_run(run_dir, "one", noisy_times(1, 50))
    folder = RunFolder(Store(run_dir), "none")
    folder.claim_attempt("none", {})
    empty = make_rank(make_windows([0.1])).model_copy(
        update={"iteration_time": type(make_rank(make_windows([0.1])).iteration_time)()}
    )
    bare = empty.model_copy(
        update={
            "rates": type(empty.rates)(),
            "price": None,
            "attempt": empty.attempt.model_copy(update={"start_step": None, "end_step": None}),
            "progress": empty.progress.model_copy(update={"optimizer_steps": None}),
        }
    )
    folder.write_record(1, 0, bare.model_dump_json(exclude_none=True).encode())
    code, _, err = cli("compare", "one", "none", "--fail-above", "5%")
    figures = json.loads(cli("compare", "one", "none", "--json")[1])["figures"]
    if any(figure["is_judged"] for figure in figures):
        pytest.fail(f"the test needs runs that cannot be compared: {figures}")
    assert code == 1
    assert "could judge no figure" in err

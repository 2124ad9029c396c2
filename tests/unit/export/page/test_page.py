"""The report page as a document: what stands in it, whatever the run was."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from costlens.core.finding_records import FindingPart, UndecidedPart
from costlens.core.practice_records import CheckPart
from costlens.core.records import RankRecord
from costlens.core.run_record import RunRecord
from costlens.core.trouble_records import StallPart
from costlens.export.page.page import make_page
from costlens.export.page.render import render_page
from costlens.export.page.windows import History, read_history
from costlens.export.record import read_ranks, read_run
from costlens.storage.run_folder import RunFolder
from tests.made_runs import usual_price, write_run
from tests.unit.account.build import START

BUNDLE = "window.vegaEmbed = () => null; // </script><!-- would end the script"
SECTIONS = (
    *("figures", "findings", "waterfall", "ledger", "events", "speed", "quality", "gpus"),
    *("hosts", "units", "saves", "practice", "attempts", "ranks", "watching"),
)
VOID = {"meta", "link", "br"}


def _with_spaces(text: str) -> str:
    """Return a text with the spaces at which no line ends as any other."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


class Document(HTMLParser):
    """What of a page a test wants to know."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str, list[str]] = {}
        self.shown: dict[str, str] = {}
        self.scripts: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self._path: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if path := found.get("data-path"):
            self.values.setdefault(path, []).append(found.get("value") or "unknown")
            self._path = path

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        data = _with_spaces(data)
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data

    def ids(self) -> list[str]:
        """Return all ids."""
        return [found["id"] or "" for _, found in self.tags if "id" in found]


def _make(folder: RunFolder, now: float | None = None) -> tuple[RunRecord, str]:
    records, _ = read_ranks(folder, START)
    end = max(record.attempt.heartbeat_time for record in records)
    record = read_run(folder, end + 1 if now is None else now)
    page = make_page(record, read_history(folder, records), end + 1, "0.1.0")
    return record, render_page(page, BUNDLE)


def _lookup(record: RunRecord, path: str) -> Any:
    """Return what stands at a path of the record, as JSON has it."""
    value: Any = json.loads(record.model_dump_json())
    while path and value is not None:
        if isinstance(value, list):
            head, _, path = path.partition(".")
            value = value[int(head)]
            continue
        # Names of metrics may hold dots.
        names = sorted(value, key=len, reverse=True)
        head = next((n for n in names if path == n or path.startswith(f"{n}.")), None)
        if head is None:
            return None
        value, path = value[head], path[len(head) + 1 :]
    return value


RUNS: dict[str, Callable[[Path], RunFolder]] = {
    "finished": lambda place: write_run(place, price=usual_price()),
    "no price": write_run,
    "a CPU": lambda place: write_run(place, has_gpus=False, price=usual_price()),
    "live": lambda place: write_run(place, num_windows=85, outcome="running", price=usual_price()),
    "lost": lambda place: write_run(place, num_windows=85, outcome="lost"),
    "no window yet": lambda place: write_run(place, num_windows=0, outcome="running"),
    "restarted": lambda place: write_run(
        place, num_windows=120, num_attempts=4, price=usual_price()
    ),
    "many ranks": lambda place: write_run(place, num_windows=12, num_ranks=64, price=usual_price()),
}


Made = Callable[[str], tuple[RunRecord, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a function that gives the record and the page of a run, made once."""

    @functools.cache
    def make(run: str) -> tuple[RunRecord, str]:
        return _make(RUNS[run](tmp_path_factory.mktemp("run")))

    return make


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_the_records(run: str, made: Made) -> None:
    """Each value in the page equals what the merged record holds at the place it names."""
    record, text = made(run)
    document = Document(text)
    assert document.open == []
    assert len(document.values) > 20
    for path, values in document.values.items():
        expected = _lookup(record, path)
        for value in values:
            if value == "unknown":
                assert expected is None, path
            elif isinstance(expected, float):
                assert float(value) == expected, path
            else:
                assert value == str(expected), path


@pytest.mark.parametrize("run", RUNS)
def test_every_section_is_there_and_says_why_it_is_empty(run: str, made: Made) -> None:
    """No run leaves a hole: a section that has nothing to show gives its reason."""
    _, text = made(run)
    document = Document(text)
    ids = document.ids()
    assert len(ids) == len({*ids})
    assert {f"{section}-title" for section in SECTIONS} <= {*ids}
    linked = {found["href"] for tag, found in document.tags if tag == "a"}
    assert {f"#{section}" for section in SECTIONS if section != "figures"} <= linked
    words = {*re.findall(r"[A-Za-z]+", document.text)}
    assert not words & {"nan", "NaN", "None", "inf", "Infinity"}


def test_without_a_price_nothing_costs_nothing(made: Made) -> None:
    """C106: money is unknown and says which variable to set; no cell shows 0."""
    record, text = made("no price")
    document = Document(text)
    assert record.cost.total is None
    assert document.values["cost.total"] == ["unknown"] * len(document.values["cost.total"])
    assert "set COSTLENS_GPU_HOUR_PRICE" in document.text
    assert not re.search(r"\b0\.00\b|USD", document.text)


def test_an_attempt_without_a_price_was_not_free(tmp_path: Path) -> None:
    """C106: quality is drawn over hours and says why: nobody knows what was spent by then."""

    def drop(record: RankRecord) -> RankRecord:
        return record.model_copy(update={"price": None}) if record.attempt.number == 1 else record

    folder = write_run(tmp_path, num_windows=120, num_attempts=2, price=usual_price(), change=drop)
    record, text = _make(folder)
    assert record.cost.is_partial
    assert record.cost.total is not None
    rows = json.loads(Document(text).scripts[0])["columns"]
    assert rows["h"]
    assert "w" not in rows
    assert "Drawn over paid hours: " in text


def test_a_cpu_run_has_no_gpu_figures(made: Made) -> None:
    """The section on GPUs says that nobody has seen one; hosts are drawn."""
    _, text = made("a CPU")
    document = Document(text)
    assert document.values["gpu.utilization"] == ["unknown"]
    assert "Unknown: no rank has seen a GPU." in document.text
    charts = [found["data-chart"] for _, found in document.tags if "data-chart" in found]
    assert "use-cpu-ratio" in charts
    assert not any(chart and chart.startswith("use-gpu") for chart in charts)


def test_a_live_run_says_that_figures_are_so_far(made: Made) -> None:
    """Whoever opens the page tomorrow must not take it for the end."""
    _, text = made("live")
    assert "The run is alive: its last heartbeat was 1.00 s before this page." in _with_spaces(text)
    assert "still running" in text


def test_a_stall_and_its_place_in_the_code_stand_at_the_top(tmp_path: Path) -> None:
    """What does not move is the first thing to know."""
    stall = StallPart(
        phase="backward", since=START + 800, age_s=700, limit_s=60, stack=["loop.py:7 in step"]
    )
    folder = write_run(tmp_path, num_windows=85, outcome="running", stall=stall)
    _, text = _make(folder)
    head = text.partition("<main")[0]
    assert "Rank 0 has not moved in backward for 11m 40s (limit 60.0 s)." in _with_spaces(head)
    assert "loop.py:7 in step" in head


HOSTILE = {
    "a tag": "</script><script>window.owned=1</script><img src=x onerror=owned()>",
    "quotes": """"'><svg onload=owned()> & &amp; `${owned}` {{7*7}} {% raw %}""",
    "control": "a\x1b]0;owned\x07\x00b\nc\u2028d\u2029",
    "turned": "gpt\u202elmth.exe\u2066\u200f",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_from_outside_are_text_and_nothing_else(kind: str, tmp_path: Path) -> None:
    """Names of runs, labels, hosts and metrics can neither end a tag nor hide what they are."""
    name = HOSTILE[kind]

    def spoil(record: Any) -> Any:
        rank = record.rank.model_copy(update={"host_name": name})
        return record.model_copy(
            update={
                "rank": rank,
                "quality": {name: record.quality["loss"]},
                "attempt": record.attempt.model_copy(update={"error_type": name}),
            }
        )

    names = {"name": name, "team": name[:200], "dataset_version": name[:200], "framework": name}
    folder = write_run(tmp_path, "hostile-1", num_windows=30, names=names, change=spoil)
    place = tmp_path / "hostile-1" / "segments" / "windows-1-0-000000.jsonl"
    place.write_text(place.read_text().replace('"loss"', json.dumps(name)), encoding="utf-8")
    _, text = _make(folder)
    document = Document(text)
    assert document.open == []
    assert [tag for tag, _ in document.tags if tag in {"img", "svg", "iframe", "object"}] == []
    assert len(document.scripts) == 3
    assert not any(key.startswith("on") for _, found in document.tags for key in found)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text
    )
    json.loads(document.scripts[0])
    assert kind != "quotes" or "{{7*7}}" in document.text  # no template runs what a name says


def test_only_the_pages_own_scripts_may_run(made: Made) -> None:
    """The policy names the digest of each script, refuses the network, and lists no origin."""
    import base64
    import hashlib

    _, text = made("finished")
    document = Document(text)
    policy = next(
        found["content"] or ""
        for tag, found in document.tags
        if found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src ")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    for script in re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert "@import" not in text
    assert "<!-- would" not in document.scripts[1]


def _without_data(text: str) -> str:
    return re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)


def test_the_page_of_a_long_run_is_as_large_as_that_of_a_short_one(tmp_path: Path) -> None:
    """Ten times the windows make no larger page: 600 and 6,000 windows differ by less than half."""
    short = len(_make(write_run(tmp_path / "a", num_windows=600))[1])
    long = len(_make(write_run(tmp_path / "b", num_windows=6000))[1])
    assert long < 1.5 * short
    assert long < 1_000_000


def test_data_of_charts_is_shared_and_small(made: Made) -> None:
    """Columns stand in the page once, however many charts are drawn from them."""
    _, text = made("finished")
    data = json.loads(Document(text).scripts[0])
    assert {len(values) for values in data["columns"].values()} == {600}
    assert all("columns" not in chart.get("data", {}) for chart in data["charts"].values())
    assert len(text) - len(_without_data(text)) < 600_000


def test_tables_of_many_ranks_and_attempts_stay_bounded(tmp_path: Path) -> None:
    """They leave out what nobody reads, and say how much that is."""
    _, text = _make(write_run(tmp_path / "a", num_windows=1, num_ranks=140))
    assert "The 128 slowest of 140 ranks." in text
    assert len(text) < 500_000
    _, text = _make(write_run(tmp_path / "b", num_windows=1, num_attempts=110))
    assert "The first 10 attempts are left out." in text
    assert len(text) < 500_000


def _charts(text: str) -> Iterator[dict[str, Any]]:
    yield from json.loads(Document(text).scripts[0])["charts"].values()


@pytest.mark.parametrize("run", RUNS)
def test_charts_are_vega_lite(run: str, made: Made) -> None:
    """The library compiles each specification with its data, without a warning."""
    _, text = made(run)
    turned = json.loads(Document(text).scripts[0])["columns"]
    columns = [
        dict(zip(turned, values, strict=True)) for values in zip(*turned.values(), strict=True)
    ]
    for chart in _charts(text):
        compiled = vl_convert.vegalite_to_vega({**chart, "datasets": {"columns": columns}})
        assert compiled["marks"]


def test_a_waterfall_ends_at_what_is_productive(made: Made) -> None:
    """Each bar begins where the one before it ended, and the last reaches the ground."""
    record, text = made("restarted")
    chart = json.loads(Document(text).scripts[0])["charts"]["waterfall-chart"]
    rows = chart["data"]["values"]
    assert rows[0]["to"] == pytest.approx(float(record.cost.total or 0))
    level = rows[0]["to"]
    for row in rows[1:-1]:
        assert row["to"] == pytest.approx(level)
        level = row["from"]
    assert rows[-1]["from"] == 0.0
    assert rows[-1]["to"] == pytest.approx(level, rel=1e-6)
    assert record.goodput.productive is not None
    assert rows[-1]["to"] == pytest.approx(float(record.goodput.productive.money or 0))


def test_the_page_opens_with_the_findings_of_the_record(tmp_path: Path) -> None:
    """Cause in words, money, where, the best remedy and what it saves stand before all charts."""
    folder = write_run(tmp_path, num_windows=90, price=usual_price())
    records, _ = read_ranks(folder, START)
    finding = FindingPart(
        name="too_few_workers",
        severity="warning",
        money_per_hour="0.31",
        money_so_far="0.0775",
        currency="USD",
        share=0.124,
        evidence=["the fetch waits 124 ms of every second"],
        remedies=["DataLoader(num_workers=8)", "persistent_workers=True"],
        remedy_shares=[0.11, None],
        since=START + 60,
        is_open=True,
        traceql='{ name = "a" && b < 3 }',
    )
    undecided = UndecidedPart(name="throttling", missing="the clocks of the GPU")
    update = {"findings": [finding], "undecided": [undecided], "unjudged": None}
    record = read_run(folder, START + 901).model_copy(update=update)
    text = render_page(make_page(record, read_history(folder, records), START, "1"), BUNDLE)
    document = Document(text)
    first = document.text.partition("From paid to productive")[2].partition("Of ")[0]
    assert "The data loader has too few workers" in first
    assert "DataLoader(num_workers=8) saves 11.0 % of paid time at the end" in first
    assert "the fetch waits 124 ms of every second" in first
    assert '{ name = "a" && b < 3 }' in first
    assert "the clocks of the GPU" in first
    assert document.values["findings.0.money_per_hour"] == ["0.31"]
    assert document.values["findings.0.share"] == ["0.124"]
    events = json.loads(document.scripts[0])["charts"]["events-chart"]["data"]["values"]
    assert [(e["a"], e["text"]) for e in events if e["lane"] == "findings"] == [
        (round((START + 60) * 1000), "too_few_workers found")
    ]


def test_no_line_ends_between_a_number_and_its_unit(tmp_path: Path) -> None:
    """A share, a time, a size or an amount of money stays whole; what is copied stays as it is."""
    folder = write_run(tmp_path, num_windows=30, price=usual_price())
    records, _ = read_ranks(folder, START + 301)
    finding = FindingPart(
        name="data_wait",
        severity="warning",
        evidence=["the fetch waits 124 ms of 1.5 s, 0.5 % of 3 GB in 12m 04s for 2 samples"],
        traceql="{ duration > 3 s }",
    )
    record = read_run(folder, START + 301).model_copy(update={"findings": [finding]})
    text = render_page(make_page(record, read_history(folder, records), START, "1"), BUNDLE)
    evidence = "124_ms of 1.5_s, 0.5_% of 3_GB in 12m_04s for 2 samples"
    assert evidence.replace("_", "\N{NO-BREAK SPACE}") in text
    assert "<code>{ duration &gt; 3 s }</code>" in text
    told = re.sub(r"<(script|style|code).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    assert len(re.findall(r"\d\N{NO-BREAK SPACE}(?:%|USD)", told)) > 20
    assert re.findall(r"\d (?:%|s|ms|USD|GB|MB|W|kWh)(?![\w/])", told) == []


def test_good_practice_is_that_of_the_record(tmp_path: Path) -> None:
    """What the page says of a check is what `costlens report --json` says."""
    folder = write_run(tmp_path, num_windows=3)
    record = read_run(folder, START + 31)
    check = CheckPart(name="price_set", standing="fail", why="because so", remedy="do this")
    text = render_page(
        make_page(record.model_copy(update={"practice": [check]}), History(()), START, "1"), BUNDLE
    )
    told = " ".join(Document(text).text.split())
    assert "Good practice 1 fail." in told
    assert "price set✗ failbecause sodo this" in told


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"findings": [], "unjudged": None}, "Nothing to fix was found."),
        ({"findings": [], "unjudged": "a debug run"}, "Not judged: a debug run."),
        (
            {"findings": [FindingPart(name="compute_bound", severity="info")], "unjudged": None},
            "Nothing to fix: ",
        ),
    ],
)
def test_no_finding_is_said_and_says_why(update: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Nobody takes a run that was not judged for a healthy one."""
    folder = write_run(tmp_path, num_windows=3)
    record = read_run(folder, START + 31).model_copy(update=update)
    text = render_page(make_page(record, History(()), START, "1"), BUNDLE)
    assert said in Document(text).text
    assert '<article class="finding' not in text


def test_a_page_is_the_same_in_every_process(tmp_path: Path) -> None:
    """No sum depends on the order of a set, which is another in each process."""
    write_run(tmp_path, num_windows=30, num_ranks=2)
    program = (
        "import sys; from pathlib import Path\n"
        "from costlens.storage.runs import open_run\n"
        "from tests.unit.export.page.test_page import _make\n"
        "sys.stdout.write(_make(open_run('latest', sys.argv[1]))[1])"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            check=True,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            timeout=100,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(pages) == 1

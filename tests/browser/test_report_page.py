"""The report page in a real browser, opened from disk."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import costlens
from costlens.export.record import read_run
from costlens.storage.run_folder import RunFolder
from costlens.storage.runs import open_run
from tests.made_runs import usual_price, write_run
from tests.unit.account.build import START

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Publish = Callable[[RunFolder], Path]
RUNS: dict[str, Callable[[Path], RunFolder]] = {
    "finished": lambda place: write_run(place, price=usual_price()),
    "no price on a CPU": lambda place: write_run(place, num_windows=90, has_gpus=False),
    "live": lambda place: write_run(place, num_windows=85, outcome="running"),
    "killed": lambda place: write_run(place, num_windows=7, outcome="lost"),
    "no window yet": lambda place: write_run(place, num_windows=0, outcome="running"),
    "restarted": lambda place: write_run(
        place, num_windows=300, num_attempts=5, price=usual_price()
    ),
    "many ranks": lambda place: write_run(place, num_windows=20, num_ranks=64, price=usual_price()),
}
HOSTILE = (
    "</script><script>window.owned=1</script><img src=x onerror='window.owned=1'>\"'&\u202e\x00"
)


@contextmanager
def _opened(browser: Browser, file: Path, **options: Any) -> Iterator[Page]:
    """Open a page without a network; fail on anything said in the console or asked for."""
    context = browser.new_context(offline=True, **options)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: said.append(request.url))
    try:
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-drawn=true]", state="attached", timeout=60_000)
        yield page
        assert [line for line in said if line != file.as_uri()] == []
    finally:
        context.close()


def _values(page: Page) -> list[tuple[str, str]]:
    script = "all => all.map(one => [one.dataset.path, one.value])"
    return [(p, v) for p, v in page.eval_on_selector_all("data[data-path]", script)]


@pytest.mark.parametrize("run", RUNS)
def test_every_chart_is_drawn_without_a_word_and_without_a_network(
    run: str, chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Neither error nor warning nor request; each chart has marks inside its width."""
    file = publish(RUNS[run](tmp_path / "runs"))
    with _opened(chromium, file) as page:
        plots = page.locator("[data-chart]")
        assert plots.count() >= 2
        for index in range(plots.count()):
            plot = plots.nth(index)
            name = plot.get_attribute("data-chart")
            assert plot.locator("svg").count() == 1, name
            assert plot.locator("svg .mark-rect path, svg .mark-line path, svg .mark-rule line"
                                ", svg .mark-symbol path").count() > 0, name  # fmt: skip
            drawn, box = plot.locator("svg").bounding_box(), plot.bounding_box()
            assert drawn is not None
            assert box is not None
            assert drawn["width"] <= box["width"] + 1, name


def test_figures_in_the_browser_are_the_records(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """What the document says after everything has run equals the merged record."""
    folder = RUNS["restarted"](tmp_path / "runs")
    record = json.loads(read_run(folder, START + 1e6).model_dump_json())
    with _opened(chromium, publish(folder)) as page:
        values = dict(_values(page))
        shown = page.locator("data[data-path='cost.total']").first.inner_text()
    assert values["cost.total"] == record["cost"]["total"]
    assert values["goodput.share"] == str(record["goodput"]["share"])
    assert values["progress.optimizer_steps"] == str(record["progress"]["optimizer_steps"])
    assert values["iteration_time.median_s"] == str(record["iteration_time"]["median_s"])
    assert float(shown.split()[0].replace(",", "")) == pytest.approx(
        float(record["cost"]["total"]), rel=0.01
    )


def test_nothing_on_the_page_runs_what_a_name_says(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Hostile names of the run and of a metric are shown as text, in charts and tips as well."""

    def spoil(record: Any) -> Any:
        return record.model_copy(update={"quality": {HOSTILE: record.quality["loss"]}})

    names = {"name": HOSTILE, "team": HOSTILE}
    folder = write_run(tmp_path / "runs", num_windows=60, names=names, change=spoil)
    place = tmp_path / "runs" / folder.run_id / "segments" / "windows-1-0-000000.jsonl"
    place.write_text(place.read_text().replace('"loss"', json.dumps(HOSTILE)), encoding="utf-8")
    with _opened(chromium, publish(folder)) as page:
        assert "<script>window.owned=1</script>" in page.locator("h1").inner_text()
        plot = page.locator("[data-chart^=quality]").first
        plot.scroll_into_view_if_needed()
        plot.hover()
        assert page.evaluate("window.owned === undefined")
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_rules_of_accessibility_hold(
    scheme: str, width: int, chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Axe finds nothing against WCAG 2.2 AA, contrast included, in either scheme and width."""
    from axe_playwright_python.sync_playwright import Axe

    folder = write_run(tmp_path / "runs", num_windows=70, num_attempts=2, price=usual_price())
    file = publish(folder)
    size = {"width": width, "height": 900}
    with _opened(chromium, file, color_scheme=scheme, viewport=size) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        found = Axe().run(page)
    rules = [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found.response["violations"]
    ]
    assert rules == []


@pytest.mark.parametrize("run", ["restarted", "many ranks", "no price on a CPU"])
def test_a_phone_scrolls_down_only(
    run: str, chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """At 360 pixels nothing is wider than the page, with all tables open."""
    file = publish(RUNS[run](tmp_path / "runs"))
    with _opened(chromium, file, viewport={"width": 360, "height": 740}) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


def test_the_page_of_a_real_run_is_drawn(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """A loop that has just run: its windows, its host and its loss are on the page."""
    run = costlens.start(
        "real", config=costlens.Config(dir=str(tmp_path / "runs"), window_s=0.5, summary=False)
    )
    for number in range(60):
        with run.iteration(samples=4) as iteration:
            time.sleep(0.03)
            iteration.log(loss=1 / (1 + number))
    run.finish()
    folder = open_run("real", str(tmp_path / "runs"))
    with _opened(chromium, publish(folder)) as page:
        values = dict(_values(page))
        charts = page.eval_on_selector_all("[data-chart]", "all => all.map(o => o.dataset.chart)")
        assert page.locator("h1").inner_text().split() == ["real", "completed"]
    assert values["quality.loss.last"] == str(1 / 60)
    assert {"ledger-chart", "quality-q0", "bins-chart", "use-memory-ratio"} <= {*charts}


def test_a_change_of_scheme_needs_no_new_drawing(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Text in charts is light on dark and dark on light."""
    file = publish(RUNS["finished"](tmp_path / "runs"))
    label = "[data-chart=ledger-chart] svg .role-axis-label text"
    colour = f"getComputedStyle(document.querySelector('{label}')).fill"
    with _opened(chromium, file, color_scheme="light") as page:
        light = page.evaluate(colour)
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(colour)
    brightness = [sum(map(int, re.findall(r"\d+", text)[:3])) for text in (light, dark)]
    assert brightness[0] < 3 * 110 < 3 * 145 < brightness[1]


def test_everything_is_reached_by_the_keyboard(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Tab goes to the skip link, all sections and all tables, and shows where it is."""
    file = publish(RUNS["finished"](tmp_path / "runs"))
    with _opened(chromium, file) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.reload()
        page.wait_for_selector("html[data-drawn=true]", state="attached")
        links = page.locator("nav a").count()
        tables = page.locator("summary").count()
        reached = set()
        for _ in range(links + tables + 10):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "(e => e.tagName + (e.href || e.textContent))(document.activeElement)"
                )
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid" or page.evaluate("document.activeElement === document.body")
        assert sum(one.startswith("SUMMARY") for one in reached) == tables
        assert sum(one.startswith("A") for one in reached) == links + 1
        page.locator("summary").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("details[open] table").count() == 1


def test_a_pointer_over_a_chart_tells_the_values(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """The shares of the column under it, which add up."""
    file = publish(RUNS["finished"](tmp_path / "runs"))
    with _opened(chromium, file) as page:
        plot = page.locator("[data-chart=ledger-chart]")
        plot.scroll_into_view_if_needed()
        plot.hover()
        page.wait_for_selector("#vg-tooltip-element.visible")
        told = page.locator("#vg-tooltip-element").inner_text()
    shares = [float(share) for share in re.findall(r"([\d.]+)%", told)]
    assert sum(shares) == pytest.approx(100, abs=1.5)
    assert "backward" in told


def test_without_javascript_all_figures_are_there(
    chromium: Browser, publish: Publish, tmp_path: Path
) -> None:
    """Tables do not depend on a script."""
    file = publish(RUNS["finished"](tmp_path / "runs"))
    context = chromium.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("table").count() > 6
    assert "Charts need JavaScript" in page.content()
    context.close()


def test_paper_shows_the_tables(chromium: Browser, publish: Publish, tmp_path: Path) -> None:
    """Printing opens what is folded and leaves out the navigation."""
    file = publish(RUNS["finished"](tmp_path / "runs"))
    with _opened(chromium, file) as page:
        page.pdf()
        page.emulate_media(media="print")
        assert page.locator("details:not([open])").count() == 0
        assert not page.locator("nav").is_visible()

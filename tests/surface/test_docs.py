"""The written documentation agrees with the code."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import jsonschema
import pytest

from costlens.account.ledger import merge
from costlens.core.phases import NAMES
from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord
from tests.unit.account.build import START, make_price, make_record

DOCS = Path(__file__).parents[2] / "docs"
WORDS = (
    *("run", "attempt", "rank", "iteration", "step", "phase", "stage", "state", "outcome"),
    *("window", "trace period", "goodput", "badput", "lost work", "checkpoint", "save", "restore"),
    *("resume", "MTBF", "price", "ledger", "probe", "exporter", "store", "finding", "record"),
)


@pytest.fixture
def generator() -> dict:
    """Return the names of the script that writes the generated pages."""
    return runpy.run_path(str(DOCS / "generate.py"))


def _defined() -> list[str]:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\| ([\w -]+) \| (?!meaning)", text, flags=re.MULTILINE)


@pytest.mark.parametrize("word", [*WORDS, *NAMES, *(outcome.value for outcome in Outcome)])
def test_the_glossary_defines_every_word(word: str) -> None:
    """Each word of the design, each phase and each outcome has its line."""
    assert word in _defined()


def test_the_glossary_defines_no_phase_that_does_not_exist() -> None:
    """A phase that was renamed or removed does not live on in the glossary."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    phases = text.partition("## Phases")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\w+) \|", phases, flags=re.MULTILINE)[1:] == [*NAMES]
    outcomes = text.partition("## Outcomes")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| (\w+) \|", outcomes, flags=re.MULTILINE)[1:]) == {*Outcome}


def test_each_decision_has_a_number_of_its_own() -> None:
    """Who cites decision 10 means one page; its title bears the number of its file."""
    pages = sorted((DOCS / "decisions").glob("*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    assert numbers == [*range(1, len(pages) + 1)]
    for number, page in zip(numbers, pages, strict=True):
        assert page.read_text(encoding="utf-8").startswith(f"# {number}. ")


def test_generated_pages_are_up_to_date(generator: dict) -> None:
    """Settings, metrics and the record's schema are documented as they are; else `make docs`."""
    assert generator["main"](["--check"]) == 0


def test_generated_pages_say_so_in_their_first_lines() -> None:
    """Nobody edits by hand what will be overwritten."""
    for name in ("config.md", "metrics.md", "record.schema.json"):
        head = (DOCS / name).read_text(encoding="utf-8")[:200]
        assert "made by docs/generate.py" in head


def test_a_stale_page_is_found_and_not_touched(
    generator: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` names what is out of date and writes nothing; without it the page is written."""
    main = generator["main"]
    main.__globals__["DOCS"] = tmp_path
    (tmp_path / "config.md").write_text("old")
    assert main(["--check"]) == 1
    assert "config.md, metrics.md, phases.md, record.schema.json" in capsys.readouterr().err
    assert (tmp_path / "config.md").read_text() == "old"
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_a_merged_record_is_what_the_schema_describes() -> None:
    """What is printed validates, and a wrong kind of value does not."""
    schema = json.loads((DOCS / "record.schema.json").read_text(encoding="utf-8"))
    record = make_record(time_s={"compute": 3.0}, price=make_price("1"))
    document = json.loads(merge([record], now=START).model_dump_json())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert set(schema["required"]) <= set(document) == set(RunRecord.model_fields)
    document["cost"]["total"] = 5
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)

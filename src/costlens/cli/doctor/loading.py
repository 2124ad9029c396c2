"""Loads what the checks need before their time runs: on a slow disk torch alone takes a minute."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

from costlens.config import Config
from costlens.errors import CostlensError

__all__ = ["load_packages"]

# What a broken installation raises; the check that needs it finds and tells it again.
_BROKEN = (ImportError, OSError, ValueError, RuntimeError, AttributeError, CostlensError)


def load_packages(config: Config) -> None:
    """Import what the checks of these settings use; touches no network.

    Args:
        config: The settings of a run that would start here.
    """
    if find_spec("torch") is not None:
        with suppress(*_BROKEN):
            import costlens.protect.precision
    with suppress(*_BROKEN):
        import costlens.cli.prices
        import costlens.observe.gpu_survey  # noqa: F401
    with suppress(*_BROKEN):
        _build_exporters()
    for url in (config.run_dir, config.checkpoint_url, config.price_book):
        if url is not None:
            with suppress(*_BROKEN):
                _load_plugin(url)


def _build_exporters() -> None:
    from costlens.export.otel_check import look_up_settings
    from costlens.export.otel_endpoint import build_exporters

    settings = look_up_settings()
    if settings.signals:
        for exporter in build_exporters(settings).values():
            exporter.shutdown()


def _load_plugin(url: str) -> None:
    from costlens.storage import files

    if files.local_path(url) is None:
        files.load(url)

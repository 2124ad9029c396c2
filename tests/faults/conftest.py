"""The real OTLP receiver, and readable assertions of the helpers."""

from __future__ import annotations

from tests.fixtures_otlp import otlp_process, otlp_receiver

__all__ = ["otlp_process", "otlp_receiver"]

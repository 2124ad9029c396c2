"""The real OTLP receiver, for every test in this folder."""

from tests.fixtures_otlp import otlp_process, otlp_receiver

__all__ = ["otlp_process", "otlp_receiver"]

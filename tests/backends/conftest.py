"""The real OTLP receiver and the real back-ends, for every test in this folder."""

from tests.fixtures_backends import backends, webhook
from tests.fixtures_otlp import otlp_process, otlp_receiver

__all__ = ["backends", "otlp_process", "otlp_receiver", "webhook"]

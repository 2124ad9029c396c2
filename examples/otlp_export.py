"""Sends a run's traces and metrics to an OTLP endpoint, such as a Collector or Tempo.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 python examples/otlp_export.py

The standard OTEL_* variables say where to and how; without any the run folder and the report
remain.
"""

import time

import costlens


def main() -> None:
    """Watch a loop that pretends to train, then say where to look."""
    with costlens.start("otlp-example", window_s=1.0) as run:
        for step in range(60):
            with run.iteration(tokens=512, samples=8) as iteration:
                time.sleep(0.02)
                iteration.log(loss=2.0 / (step + 1))
    print(f'find it in Tempo: {{ name = "costlens.run" && span.costlens.run.id = "{run.id}" }}')


if __name__ == "__main__":
    main()

"""Puts the demo's report into the README: ``python -m benchmarks.readme_demo``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.readme import replace_block

COMMAND = ("demo", "--price", "1.20")


def make_report() -> list[str]:
    """Return what ``costlens demo --price 1.20`` prints, line by line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("COSTLENS_")},
            "COLUMNS": "110",
            "COSTLENS_DIR": folder,
            "NO_COLOR": "1",
        }
        command = [sys.executable, "-m", "costlens", *COMMAND]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    text = done.stdout.replace(folder, "costlens-runs")
    return [line.rstrip() for line in text.strip().splitlines()]


def main() -> None:
    """Run the demo and replace the README's block."""
    report = make_report()
    head = f"`costlens {' '.join(COMMAND)}` prints:"
    replace_block("demo", [head, "", "```text", *report, "```"])
    print("\n".join(report))


if __name__ == "__main__":
    main()

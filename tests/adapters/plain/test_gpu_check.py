"""The device proof: says what it did, with a GPU and without."""

from __future__ import annotations

import json

import torch

from benchmarks import gpu_check


def test_without_a_gpu_it_says_that_nothing_was_checked(capsys, monkeypatch):
    """The verdict of a machine without a GPU is no verdict, and says so."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main() == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"checked": False, "reason": "no CUDA device: nothing was checked"}


def test_every_check_holds_on_a_gpu(capsys, require):
    """No synchronisation, goodput, starvation, graphs, numerics and overhead on a real device."""
    require("cuda", torch.cuda.is_available(), "torch finds no CUDA device")
    assert gpu_check.main() == 0, capsys.readouterr().out

"""What the training logs that says how good the model is: loss, learning rate, chosen metrics.

Values go to ``parts.values`` as they are; a tensor is read later, on the pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from costlens.core.scopes import CountTaker
from costlens.observe.trainer.given import Optimizer

__all__ = ["QualityReader"]

# Under these names Lightning's own `grad_norm` helper and most users log the norm of the gradient.
_GRADIENT_NORMS = {"grad_norm": "grad_norm", "grad_2.0_norm_total": "grad_norm"}


class QualityReader:
    """Hands on what a Trainer logged; training thread.

    Args:
        values: Takes the values.
        patterns: Globs of the logged names to keep.
    """

    def __init__(self, values: CountTaker, patterns: Sequence[str]) -> None:
        self._values = values
        self._patterns = tuple(patterns)
        self._seen: dict[str, Any] = {}
        self._learning_rate: Any = None
        self._has_loss = False

    def read_batch(self, outputs: object, factor: int, number: int) -> None:
        """Take the loss of a training batch; 2 to 5 µs.

        Args:
            outputs: What the training step gave, as Lightning hands it to hooks.
            factor: What Lightning divided the loss by.
            number: Number of the iteration.
        """
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        if loss is not None:
            self._has_loss = True
            self._values.add_metric("loss", loss if factor == 1 else loss * factor, number)

    def read_learning_rate(self, optimizer: Optimizer, number: int) -> None:
        """Take the learning rate of an optimizer's first group when it changed; under 1 µs."""
        rate = optimizer.param_groups[0].get("lr")
        # Comparing a tensor would wait for its device.
        if type(rate) is not float or rate != self._learning_rate:
            self._learning_rate = rate
            if rate is not None:
                self._values.add_metric("learning_rate", rate, number)

    def read_logged(self, metrics: Mapping[str, Any], number: int) -> None:
        """Take the logged values that are new and wanted; once a window and evaluation.

        Args:
            metrics: Logged values by name: numbers or tensors of one element.
            number: Number of the iteration they belong to.
        """
        for name, value in metrics.items():
            wanted = self._name(name)
            if wanted is None or self._seen.get(name) is value:
                continue
            self._seen[name] = value
            self._values.add_metric(wanted, value, number)

    def _name(self, name: str) -> str | None:
        if name == "loss" and self._has_loss:
            return None
        if name in _GRADIENT_NORMS:
            return _GRADIENT_NORMS[name]
        return name if any(fnmatchcase(name, pattern) for pattern in self._patterns) else None

"""The batches of a random training, and the loaders that give them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tests.fuzz.plan import Plan
from tests.fuzz.witness import Witness

__all__ = ["make_loaders"]

BATCH_SIZE = 2


class Rows(Dataset):
    """Rows of four numbers, or of four token ids; each row is the same whenever it is read."""

    def __init__(self, witness: Witness, plan: Plan, num: int) -> None:
        self.witness = witness
        self.kind = plan.batch
        self.is_noting = plan.num_workers == 0
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        if index >= self.num:
            raise IndexError(index)
        if self.is_noting:
            self.witness.note("data.read", int(index))
        numbers = torch.sin(torch.arange(4) + 7.0 * index)
        if self.kind == "pair":
            return numbers, torch.tensor(float(index % 2))
        if self.kind.startswith("text"):
            return self._text(index)
        return numbers

    def _text(self, index: int) -> dict[str, torch.Tensor]:
        mask = (torch.arange(4) <= index % 4).long()
        ids = (torch.arange(4) + index) % 5
        row = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
        if self.kind == "text without mask":
            del row["attention_mask"]
        return row


class Stream(IterableDataset):
    """The same rows one after another, without a length."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, every = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, len(self.rows), every):
            yield self.rows[index]


class SizedStream(Stream):
    """The same with a length."""

    def __len__(self) -> int:
        return len(self.rows)


class Collate:
    """Makes a batch; where the plan says so every third one is None."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, rows: list[Any]) -> Any:
        if self.kind == "sometimes none" and round(float(rows[0][0]) * 1e4) % 3 == 0:
            return None
        return torch.utils.data.default_collate(rows)


def make_loaders(pl: ModuleType, witness: Witness, plan: Plan, stage: str) -> Any:
    """Return the loaders of a stage, as a user hands them to the Trainer."""
    made = Maker(pl, witness, plan, is_training=stage == "train")
    return made.train() if stage == "train" else made.evaluation()


class Maker:
    """Makes loaders of one stage."""

    def __init__(self, pl: ModuleType, witness: Witness, plan: Plan, *, is_training: bool) -> None:
        self.witness = witness
        self.plan = plan
        self.is_training = is_training
        self.combined = importlib.import_module(f"{pl.__name__}.utilities").CombinedLoader

    def one(self, num: int, kind: str = "map") -> DataLoader:
        """Return a loader of ``num`` rows."""
        plan = self.plan
        rows = Rows(self.witness, plan, num)
        dataset = {"unsized": Stream, "sized stream": SizedStream}.get(kind, lambda each: each)
        is_map = kind not in ("unsized", "sized stream")
        return DataLoader(
            dataset(rows),
            batch_size=BATCH_SIZE,
            shuffle=plan.is_shuffled and self.is_training and is_map and num > 0,
            num_workers=plan.num_workers,
            persistent_workers=plan.is_persistent,
            collate_fn=Collate(plan.batch if self.is_training else ""),
        )

    def train(self) -> Any:
        """Return the loaders of training."""
        num, kind = self.plan.num_rows, self.plan.train_loader
        if kind == "batches":
            return list(self.one(num)) if self.plan.num_workers == 0 else self.one(num)
        if kind in ("map", "unsized", "sized stream"):
            return self.one(num, kind)
        short = max(1, num // 2)
        named = {"a": self.one(short), "b": self.one(num)}
        collections: dict[str, Any] = {
            "dict": named,
            "list": list(named.values()),
            "nested": {"x": list(named.values()), "y": self.one(num, "unsized")},
            "none member": {"none": None, **named},
        }
        return collections[kind] if kind in collections else self.combined(named, kind)

    def evaluation(self) -> Any:
        """Return the loaders of validation, test or prediction."""
        kind = self.plan.val_loaders
        if kind in ("min_size", "max_size"):
            return self.combined({"a": self.one(3), "b": self.one(5)}, kind)
        return {
            "one": lambda: self.one(5),
            "none": lambda: None,
            "two": lambda: [self.one(3), self.one(4)],
            "three": lambda: {"a": self.one(1), "b": self.one(4), "c": self.one(2)},
            "unsized": lambda: self.one(5, "unsized"),
            "empty": lambda: self.one(0),
        }[kind]()

"""CUDA_VISIBLE_DEVICES as CUDA reads it: what a process may use, in which order."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from costlens.observe.placement.visible import read_visible
from costlens.observe.visible_devices import (
    Candidate,
    Selection,
    TorchDevice,
    choose_own,
    match_torch,
    select_visible,
)

NAMES = "ABCD"
# The driver lists them in another order than PCI has them.
BOARDS = [
    Candidate(f"GPU-{name}1234", f"00000000:{0x20 + number:02X}:00.0", "H100")
    for number, name in reversed(list(enumerate(NAMES)))
]
SLICES = [
    Candidate(f"MIG-{n}5678", "00000000:20:00.0", "H100 MIG", "GPU-A1234", (n, 0)) for n in (2, 1)
]


def _names(selection: Selection) -> str:
    return "".join(device.uuid[4] for device in selection.devices)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, "ABCD"),
        ("0,1,2,3", "ABCD"),
        ("2,0", "CA"),
        (" 1 , 3 ", "BD"),
        ("+1", "B"),
        ("1gpu2,2ampere", "BC"),
        ("", ""),
        ("NoDevFiles", ""),
        ("-1", ""),
        ("0,-1,2", "A"),
        ("0,9,2", "A"),
        ("0,x,2", "A"),
        ("0,,2", "A"),
        ("9", ""),
        ("1,1", ""),
        ("0,1,0", ""),
        ("GPU-C1234,GPU-A1234", "CA"),
        ("GPU-C,GPU-A", "CA"),
        ("GPU-C,0", "C"),
        ("GPU-C,GPU-Z,GPU-A", "C"),
        ("GPU-", ""),
        ("GPU-C,GPU-C1", ""),
        ("0,GPU-C", "A"),
    ],
)
def test_the_rules_of_cuda(visible: str | None, names: str) -> None:
    """Order, prefixes, digits up to the first letter; the first bad entry ends the list (C083)."""
    assert _names(select_visible(visible, "PCI_BUS_ID", BOARDS)) == names


@pytest.mark.parametrize(
    ("visible", "word"),
    [("0,9", "'9'"), ("1,1", "twice"), ("GPU-", "several"), ("0,x", "'x'"), ("GPU-Z", "'GPU-Z'")],
)
def test_what_is_wrong_is_named(visible: str, word: str) -> None:
    """C083: a bad entry is told, with what it does to the list."""
    (problem,) = select_visible(visible, None, BOARDS).problems
    assert word in problem


@pytest.mark.parametrize("visible", ["", "-1", "0,-1", "NoDevFiles", "3"])
def test_what_people_mean_is_no_problem(visible: str) -> None:
    """Hiding all devices, or ending the list, is a choice."""
    assert select_visible(visible, None, BOARDS).problems == ()


def test_a_long_entry_is_cut() -> None:
    """The variable may hold anything; the record repeats little of it."""
    (problem,) = select_visible("x" * 10_000, None, BOARDS).problems
    assert len(problem) < 100


def test_order_between_models_is_cudas_secret() -> None:
    """C077: FASTEST_FIRST is known among equals only; elsewhere the order counts as assumed."""
    mixed = [*BOARDS[:-1], Candidate("GPU-A1234", "00000000:20:00.0", "T4")]
    assert select_visible("0", None, BOARDS).order == "pci"
    assert select_visible("0", "PCI_BUS_ID", mixed).order == "pci"
    assert select_visible("0", "FASTEST_FIRST", mixed).order == "assumed"
    assert select_visible("0", None, mixed).order == "assumed"
    assert select_visible("GPU-A", None, mixed).order == "uuid"


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["MIG-15678"]),
        ("0", ["MIG-15678"]),
        ("1", ["GPU-B1234"]),
        ("MIG-25678", ["MIG-25678"]),
        ("MIG-2", ["MIG-25678"]),
        ("MIG-25678,MIG-15678", ["MIG-25678"]),
        ("MIG-GPU-A1234/2/0", ["MIG-25678"]),
        ("MIG-GPU-A1234/7/0", []),
        ("GPU-A", ["MIG-15678"]),
    ],
)
def test_one_slice_of_a_cut_gpu(visible: str | None, uuids: list[str]) -> None:
    """A process sees one MIG slice: the one it names, else the first."""
    selection = select_visible(visible, None, [*BOARDS, *SLICES])
    assert [device.uuid for device in selection.devices] == uuids


def test_torch_names_devices_by_uuid_or_pci() -> None:
    """C077: torch device 0 is GPU 2 and torch device 1 is GPU 0, however the driver counts."""
    by_uuid = [TorchDevice("C1234", None), TorchDevice("a1234", None)]
    assert _names(match_torch(by_uuid, BOARDS)) == "CA"
    by_pci = [TorchDevice(None, "00000000:22:00.0"), TorchDevice("?", "00000000:20:00.0")]
    assert _names(match_torch(by_pci, BOARDS)) == "CA"
    assert match_torch(by_uuid, BOARDS).order == "torch"


def test_a_device_that_only_torch_knows_is_told() -> None:
    """It is left out, never replaced by another one."""
    selection = match_torch([TorchDevice("Z", None), TorchDevice("B1234", None)], BOARDS)
    assert _names(selection) == "B"
    assert selection.problems == ("cuda:0 is no device that the driver lists",)


@pytest.mark.parametrize(
    ("ordinals", "local_rank", "local_world_size", "names"),
    [
        (None, 0, 1, "ABCD"),
        (None, 2, 4, "C"),
        (None, 5, 8, "B"),
        ((3,), 0, 4, "D"),
        ((1, 0), 0, 1, "BA"),
        ((7,), 0, 1, ""),
    ],
)
def test_a_rank_has_its_own(
    ordinals: tuple[int, ...] | None, local_rank: int, local_world_size: int, names: str
) -> None:
    """C024: what it says it drives, else the device of its local rank, alone all of them."""
    devices = sorted(BOARDS, key=lambda board: board.pci_id)
    own = choose_own(devices, ordinals, local_rank, local_world_size)
    assert "".join(device.uuid[4] for device in own) == names


def test_a_rank_whose_launcher_shows_it_one_device_has_that() -> None:
    """Local rank 3 with one visible device drives that one."""
    assert choose_own(BOARDS[:1], None, 3, 4) == (BOARDS[0],)
    assert choose_own([], None, 3, 4) == ()


def test_the_variables_are_read_as_they_stand() -> None:
    """Not set and empty are two things."""
    assert read_visible({}) == (None, None)
    assert read_visible({"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == (
        "",
        "PCI_BUS_ID",
    )


NUMBERS = ("0", "1", "2", "3", " 2", "+1", "3x", "1gpu2", "9", "-1", "x", "")
UUIDS = ("GPU-A", "GPU-A1234", "GPU-B", "GPU-D1", "GPU-", "GPU-Z", "GPU-C1234")


@given(st.lists(st.sampled_from([*NUMBERS, *UUIDS]), min_size=1, max_size=5))
def test_torch_reads_the_variable_the_same_way(entries: list[str]) -> None:
    """C077: torch's own parser is the oracle for what CUDA does with any list."""
    visible = ",".join(entries)
    # torch's parser fails on a sign without digits, and takes an empty variable for an unset one.
    assume(visible)
    ordered = sorted(BOARDS, key=lambda board: board.pci_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        parsed = torch.cuda._parse_visible_devices()
    if parsed and isinstance(parsed[0], str):
        parsed = torch.cuda._transform_uuid_to_ordinals(parsed, [b.uuid for b in ordered])
    numbers = list(itertools.takewhile(lambda number: number < len(ordered), parsed))
    # What comes after a bad entry cannot make the list empty: CUDA does not look at it.
    seen = [entry.strip() for entry in entries]
    assume(not any(entry == "9" for entry in seen) or len(set(seen)) == len(seen))
    mine = select_visible(visible, "PCI_BUS_ID", BOARDS)
    assert [device.uuid for device in mine.devices] == [ordered[n].uuid for n in numbers]

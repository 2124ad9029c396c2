"""Small files of the kernel."""

from __future__ import annotations

from pathlib import Path

from costlens.observe.kernel_files import read_kernel_file


def test_whole_texts_are_read_and_what_cannot_be_is_none(tmp_path: Path) -> None:
    """Long ones come in pieces; folders, absent files, a NUL and odd bytes raise nothing."""
    long = tmp_path / "long"
    long.write_bytes(b"x" * 200_000)
    assert read_kernel_file(str(long)) == "x" * 200_000
    (tmp_path / "odd").write_bytes(b"a\xff\n")
    assert read_kernel_file(str(tmp_path / "odd")) == "a\ufffd\n"
    assert read_kernel_file(str(tmp_path)) is None
    assert read_kernel_file(str(tmp_path / "absent")) is None
    assert read_kernel_file("a\0b") is None


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """It is read every two seconds for weeks."""
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(10):
        read_kernel_file(str(tmp_path))
        read_kernel_file("/proc/self/stat")
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before

"""What accelerators can do at most."""

from __future__ import annotations

from decimal import Decimal

import pytest

from costlens.account.hardware import Peak, find_peak, load_hardware, mig_share


@pytest.mark.parametrize(
    ("name", "flops_per_s", "precision"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4e12, "bf16"),
        ("NVIDIA H100 PCIe", 756e12, "bf16"),
        ("NVIDIA H100 NVL", 835e12, "bf16"),
        ("NVIDIA H200", 989e12, "bf16"),
        ("NVIDIA A100-SXM4-80GB", 312e12, "bf16"),
        ("NVIDIA A100-PCIE-40GB", 312e12, "bf16"),
        ("Tesla V100-SXM2-16GB", 125e12, "fp16"),
        ("Tesla T4", 65e12, "fp16"),
        ("NVIDIA L4", 121e12, "bf16"),
        ("NVIDIA L40S", 362e12, "bf16"),
        ("AMD Instinct MI300X", 1307.4e12, "bf16"),
    ],
)
def test_peaks_are_dense_and_of_the_variant(name: str, flops_per_s: float, precision: str) -> None:
    """Half of what data sheets say with sparsity, by the driver's own names."""
    peak = find_peak(name)
    assert isinstance(peak, Peak)
    assert (peak.flops_per_s, peak.precision) == (flops_per_s, precision)
    assert peak.source
    assert peak.since >= 2019


def test_an_unknown_peak_is_not_taken_from_a_similar_product() -> None:
    """Another product, another precision, or a variant that the name does not tell."""
    assert find_peak("NVIDIA H800") == "the peak of 'NVIDIA H800' is not known"
    assert find_peak("Tesla T4", "bf16") == "the bf16 peak of 'Tesla T4' is not known"
    assert "does not say which variant" in str(find_peak("H100"))


def test_every_entry_of_the_table_is_dated_and_has_a_source() -> None:
    """Facts, not guesses: a maker's document and its year; sparsity would double them."""
    for entry in load_hardware():
        assert entry.peaks
        assert entry.source
        assert 2019 <= entry.since <= 2026
        assert all(1e12 < peak < 1e16 for peak in entry.peaks.values())


def test_a_mig_slice_is_its_share_of_the_gpu() -> None:
    """An A100 has 7 slices, an A30 has 4; what has none has no share."""
    assert Decimal(mig_share("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1) or 0) * 7 == pytest.approx(
        Decimal(1), abs=Decimal("1e-26")
    )
    assert mig_share("NVIDIA A30 MIG 2g.12gb", 2) == "0.5"
    assert mig_share("Tesla T4", 1) is None
    assert mig_share("NVIDIA A100-SXM4-40GB", 8) is None
    assert mig_share("", 1) is None

"""Product names of accelerators, as drivers and price lists write them."""

from __future__ import annotations

import pytest

from costlens.account.accelerators import Accelerator, parse_accelerator


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H100 80GB HBM3", Accelerator("H100", 80, "SXM")),
        ("NVIDIA H100 PCIe", Accelerator("H100", None, "PCIE")),
        ("NVIDIA H100 NVL", Accelerator("H100", None, "NVL")),
        ("H100-SXM", Accelerator("H100", None, "SXM")),
        ("nvidia-h100-80gb", Accelerator("H100", 80)),
        ("NVIDIA A100-SXM4-40GB", Accelerator("A100", 40, "SXM")),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Accelerator("A100", 40, "SXM")),
        ("A100-80GB", Accelerator("A100", 80)),
        ("Tesla V100-PCIE-16GB", Accelerator("V100", 16, "PCIE")),
        ("Tesla T4", Accelerator("T4")),
        ("NVIDIA A10G", Accelerator("A10G")),
        ("NVIDIA GeForce RTX 4090", Accelerator("RTX4090")),
        ("RTX4090", Accelerator("RTX4090")),
        ("NVIDIA RTX A6000", Accelerator("A6000")),
        ("NVIDIA RTX 6000 Ada Generation", Accelerator("RTX6000ADA")),
        ("RTX6000-Ada", Accelerator("RTX6000ADA")),
        ("Quadro RTX 6000", Accelerator("RTX6000")),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Accelerator("RTXPRO6000")),
        ("RTX-PRO-6000", Accelerator("RTXPRO6000")),
        ("AMD Instinct MI300X OAM", Accelerator("MI300X")),
        ("NVIDIA GB200", Accelerator("GB200")),
    ],
)
def test_a_name_is_a_model_with_its_variants(name: str, product: Accelerator) -> None:
    """The maker's and marketing words say nothing; memory and form tell variants apart."""
    assert parse_accelerator(name) == product


def test_variants_match_where_nothing_that_both_name_differs() -> None:
    """An H100 of a driver is the list's H100, and H100-SXM, but no H100 PCIe and no H200."""
    driver = parse_accelerator("NVIDIA H100 80GB HBM3")
    assert driver.match(parse_accelerator("H100")) == 0
    assert driver.match(parse_accelerator("H100-SXM")) == 1
    assert driver.match(parse_accelerator("H100-SXM5-80GB")) == 2
    assert driver.match(parse_accelerator("H100 PCIe")) is None
    assert driver.match(parse_accelerator("H100-94GB")) is None
    assert driver.match(parse_accelerator("H200")) is None
    assert parse_accelerator("H100").match(parse_accelerator("H100 PCIe")) == 0

"""Counters of InfiniBand ports, planted as files under a root of the test's own."""

from __future__ import annotations

from pathlib import Path

from costlens.observe.infiniband import InfinibandReading, find_ports, read_ports
from tests.unit.observe.test_cgroup import plant

PORT = "sys/class/infiniband/mlx5_{device}/ports/1/{file}"


def _counters(device: int, receive: object, transmit: object, folder: str = "counters") -> dict:
    suffix = "_64" if folder == "counters_ext" else ""
    return {
        PORT.format(device=device, file=f"{folder}/port_rcv_data{suffix}"): receive,
        PORT.format(device=device, file=f"{folder}/port_xmit_data{suffix}"): transmit,
    }


def test_data_counters_are_in_words_of_four_bytes(tmp_path: Path) -> None:
    """Ports are told apart, and each direction is its own."""
    plant(tmp_path, _counters(0, 250, 10) | _counters(1, 2**33, 0))
    assert read_ports(find_ports(tmp_path)) == InfinibandReading(
        receive={"mlx5_0/1": 1000, "mlx5_1/1": 2**35},
        transmit={"mlx5_0/1": 40, "mlx5_1/1": 0},
    )


def test_wide_counters_go_before_those_that_stop_at_32_bits(tmp_path: Path) -> None:
    """An old kernel's counter stands still at its end; the one beside it goes on."""
    stuck = _counters(0, 2**32 - 1, 2**32 - 1)
    plant(tmp_path, stuck)
    reading = read_ports(find_ports(tmp_path))
    assert reading.receive == {}
    assert reading.unknown == "mlx5_0/1: its 32-bit counter has reached its end"
    plant(tmp_path, _counters(0, 2**40, 2**41, "counters_ext"))
    reading = read_ports(find_ports(tmp_path))
    assert reading.receive == {"mlx5_0/1": 2**42}
    assert reading.transmit == {"mlx5_0/1": 2**43}
    assert reading.unknown is None


def test_adapters_without_those_counters_tell_bytes(tmp_path: Path) -> None:
    """Amazon's EFA counts bytes, which may well be what a stuck counter of others shows."""
    port = "sys/class/infiniband/rdmap0s31/ports/1/hw_counters"
    plant(tmp_path, {f"{port}/rx_bytes": 2**32 - 1, f"{port}/tx_bytes": 7})
    reading = read_ports(find_ports(tmp_path))
    assert reading.receive == {"rdmap0s31/1": 2**32 - 1}
    assert reading.transmit == {"rdmap0s31/1": 7}
    assert reading.unknown is None


def test_a_port_that_vanishes_or_hides_is_left_out_with_the_reason(tmp_path: Path) -> None:
    """Virtual functions often have no counters; the other ports are read all the same."""
    plant(tmp_path, _counters(0, 1, 2) | {PORT.format(device=1, file="state"): "4: ACTIVE"})
    ports = find_ports(tmp_path)
    reading = read_ports(ports)
    assert reading.receive == {"mlx5_0/1": 4}
    assert reading.unknown == "mlx5_1/1: its counters cannot be read"
    (tmp_path / PORT.format(device=0, file="counters/port_rcv_data")).unlink()
    assert read_ports(ports).receive == {}


def test_a_machine_without_infiniband_has_no_ports(tmp_path: Path) -> None:
    """Then there is nothing to read, and no reason to give."""
    assert find_ports(tmp_path) == []
    assert read_ports([]) == InfinibandReading()

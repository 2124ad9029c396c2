"""Scenarios of the stand-in driver: devices as a test needs them."""

from __future__ import annotations

from typing import Any

WATTS = 100.0


def make_device(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a device that draws 100 W for ever; None as a change takes a field away."""
    device: dict[str, Any] = {
        "uuid": f"GPU-0000000{number}-aaaa-bbbb-cccc-00000000000{number}",
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"165432{number}",
        "pci_id": f"00000000:{0x17 + 8 * number:02X}:00.0",
        "memory_total_bytes": 80 * 2**30,
        "memory_used_bytes": 20 * 2**30,
        "utilization_percent": 50,
        "memory_utilization_percent": 30,
        "power_milliwatts": WATTS * 1000,
        "power_limit_milliwatts": 700_000,
        "energy_millijoules": [[0, 5_000_000], [3600, 5_000_000 + 3600 * WATTS * 1000]],
        "temperature_celsius": 60,
        "memory_temperature_celsius": 70,
        "sm_clock_megahertz": 1980,
        "memory_clock_megahertz": 2619,
        "sm_clock_max_megahertz": 1980,
        "clock_reasons": 0,
        "activity_sm": 0.4,
        "activity_tensor": 0.2,
        "activity_dram": 0.3,
        "pcie_receive_bytes": [[0, 7e9], [1000, 8e9]],
        "pcie_transmit_bytes": [[0, 0], [1000, 5e8]],
        "nvlink_receive_kibibytes": [[0, 0], [1000, 1e6]],
        "nvlink_transmit_kibibytes": [[0, 0], [1000, 1e6]],
        "nvlink_crc_errors": 0,
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "rows_corrected": 0,
        "pcie_replays": 2,
        "xids": [],
        "processes": [],
    }
    device.update(changes)
    return {name: value for name, value in device.items() if value is not None}


def make_node(*devices: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a scenario of these devices, or of one."""
    return {
        "driver_version": "570.86.15",
        "nvml_version": "12.570.86.15",
        "cuda_version": 12080,
        "devices": list(devices) or [make_device()],
        **changes,
    }


def make_nodes_gpus(num_devices: int, **changes: Any) -> dict[str, Any]:
    """Return a scenario of several devices that are alike."""
    return make_node(*(make_device(number, **changes) for number in range(num_devices)))


def make_sliced(**changes: Any) -> dict[str, Any]:
    """Return a scenario of one GPU that is cut into two slices."""
    slices = [
        {
            "uuid": f"MIG-1111111{number}-aaaa-bbbb-cccc-00000000000{number}",
            "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
            "gpu_instance": number + 1,
            "compute_instance": 0,
            "compute_slices": 3,
            "memory_total_bytes": 40 * 2**30,
            "memory_used_bytes": (number + 1) * 2**30,
            "activity_sm": 0.25 * (number + 1),
            "processes": [],
        }
        for number in range(2)
    ]
    return make_node(make_device(mig_mode=1, mig=slices, **changes))

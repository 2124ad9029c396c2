"""Is the hardware the cause."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panel import Row
from grafana.panels import hardware, host
from grafana.settings import SETTINGS

__all__ = ["HARDWARE"]

HARDWARE = Dashboard(
    SETTINGS.dashboards.hardware,
    "costlens: hardware",
    "Is the hardware the cause, and which part of it?",
    (
        Row("GPUs", (hardware.GPUS,)),
        Row("Use", (hardware.UTILIZATION, hardware.ACTIVITY, hardware.CLOCKS)),
        Row("Memory", (hardware.MEMORY, hardware.MEMORY_SHARE, hardware.LOST)),
        Row("Power and heat", (hardware.POWER, hardware.TEMPERATURE, hardware.THROTTLING)),
        Row("Limits and errors", (hardware.POWER_CAP, hardware.ERRORS, hardware.PCIE)),
        Row("Links and network", (hardware.NVLINK, host.NETWORK, host.DISKS)),
        Row("Machine", (host.CPU, host.MACHINE_MEMORY, host.PROCESS_MEMORY)),
        Row("Container", (host.CPU_LIMIT, host.CONTAINER_MEMORY, hardware.ENERGY)),
    ),
)

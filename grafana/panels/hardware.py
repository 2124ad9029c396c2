"""Is the hardware the cause: what the GPUs do, what holds them back, what breaks."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Column, Panel, prom
from grafana.queries import RANK, THE_RANKS, increase, over_range, rate

__all__ = [
    "ACTIVITY",
    "CLOCKS",
    "ENERGY",
    "ERRORS",
    "GPUS",
    "LOST",
    "MEMORY",
    "MEMORY_SHARE",
    "NVLINK",
    "PCIE",
    "POWER",
    "POWER_CAP",
    "TEMPERATURE",
    "THROTTLING",
    "UTILIZATION",
]

_GPU = f"{RANK}, hw_id"
_LEGEND = "rank {{costlens_rank}} {{hw_id}}"
_CHIP = 'hw_sensor_location="gpu"'
_HELD_BACK = 'costlens_gpu_throttle_reason=~"thermal_hw|thermal_sw|hw_brake"'
_POWER_CAP = 'costlens_gpu_throttle_reason="power_cap"'

UTILIZATION = Panel(
    "Are the GPUs busy?",
    "Share of the time in which a GPU runs any kernel at all. Below the line an alert fires while "
    "the run trains; busy does not mean well used, which the next panel tells.",
    "percentunit",
    (prom(f"max by ({_GPU}) ({select('hw.gpu.utilization', THE_RANKS)})", _LEGEND),),
    limit="gpu_utilization_ratio",
    is_bad_below=True,
    least=0,
    most=1,
)
ACTIVITY = Panel(
    "How well are they used?",
    "Share of what each unit of the GPUs could do: sm the multiprocessors, tensor the matrix "
    "units, dram the memory. The mean of the chosen ranks, where the driver measures it.",
    "percentunit",
    (
        prom(
            f"avg by (costlens_gpu_unit) ({select('costlens.gpu.activity.ratio', THE_RANKS)})",
            "{{costlens_gpu_unit}}",
        ),
    ),
    least=0,
    most=1,
)
MEMORY = Panel(
    "How much memory is in use?",
    "Memory in use by all processes on each GPU, and what the smallest GPU has.",
    "bytes",
    (
        prom(f"max by ({_GPU}) ({select('hw.gpu.memory.usage', THE_RANKS)})", _LEGEND),
        prom(f"min({select('hw.gpu.memory.limit', THE_RANKS)})", "limit"),
    ),
    least=0,
)
MEMORY_SHARE = Panel(
    "Is it about to run out of memory?",
    "Memory in use over what the GPU has. Above the line the next longer batch may end the run.",
    "percentunit",
    (
        prom(
            f"max by ({_GPU}) ({select('hw.gpu.memory.usage', THE_RANKS)}) / "
            f"max by ({_GPU}) ({select('hw.gpu.memory.limit', THE_RANKS)})",
            _LEGEND,
        ),
    ),
    limit="memory_ratio",
    least=0,
    most=1,
)
POWER = Panel(
    "How much power do they draw?",
    "Power of each GPU, and what the smallest may draw.",
    "watt",
    (
        prom(f"max by ({_GPU}) ({select('hw.power', THE_RANKS)})", _LEGEND),
        prom(f"min({select('costlens.gpu.power.limit', THE_RANKS)})", "limit"),
    ),
    least=0,
)
ENERGY = Panel(
    "How much energy went in?",
    "Energy of the GPUs of the chosen ranks in this time range.",
    "joule",
    (prom(f"sum({over_range('hw.energy', THE_RANKS)})", "energy", is_instant=True),),
    kind="number",
    width=8,
)
TEMPERATURE = Panel(
    "How hot do they get?",
    "Temperature of chip and memory, the hottest of each rank. Heat that holds the clocks down "
    "shows beside.",
    "celsius",
    (
        prom(
            f"max by ({_GPU}, hw_sensor_location) ({select('hw.temperature', THE_RANKS)})",
            f"{_LEGEND} {{{{hw_sensor_location}}}}",
        ),
    ),
)
CLOCKS = Panel(
    "How fast are their clocks?",
    "Clock of multiprocessors and memory. One rank lower than the others is slower by as much.",
    "hertz",
    (
        prom(
            f"max by ({_GPU}, costlens_gpu_clock_domain) "
            f"({select('costlens.gpu.clock.frequency', THE_RANKS)})",
            f"{_LEGEND} {{{{costlens_gpu_clock_domain}}}}",
        ),
    ),
    least=0,
)
THROTTLING = Panel(
    "Does heat or the board hold them back?",
    "Share of the time in which heat or a hardware brake held the clocks down. Above the line an "
    "alert fires: cooling, dust, a neighbour, a power supply.",
    "percentunit",
    (
        prom(
            f"sum by ({_GPU}, costlens_gpu_throttle_reason) "
            f"({rate('costlens.gpu.throttle.time', THE_RANKS, _HELD_BACK)})",
            f"{_LEGEND} {{{{costlens_gpu_throttle_reason}}}}",
        ),
    ),
    limit="throttle_ratio",
    least=0,
)
POWER_CAP = Panel(
    "Does the power limit hold them back?",
    "Share of the time in which the power limit held the clocks down. Usual for large matrices; "
    "above the line a higher limit, if the site allows one, buys speed.",
    "percentunit",
    (
        prom(
            f"sum by ({_GPU}) ({rate('costlens.gpu.throttle.time', THE_RANKS, _POWER_CAP)})",
            _LEGEND,
        ),
    ),
    limit="power_cap_ratio",
    least=0,
)
PCIE = Panel(
    "What goes over PCIe?",
    "Traffic of each GPU with its host, by direction. A rank far below the others may sit in a "
    "slot that is too narrow.",
    "Bps",
    (
        prom(
            f"sum by ({_GPU}, network_io_direction) ({rate('hw.gpu.io', THE_RANKS)})",
            f"{_LEGEND} {{{{network_io_direction}}}}",
        ),
    ),
    least=0,
)
NVLINK = Panel(
    "What goes over NVLink?",
    "Traffic between the GPUs, by direction, where they have links.",
    "Bps",
    (
        prom(
            f"sum by ({_GPU}, network_io_direction) ({rate('costlens.gpu.nvlink.io', THE_RANKS)})",
            f"{_LEGEND} {{{{network_io_direction}}}}",
        ),
    ),
    least=0,
)
ERRORS = Panel(
    "Is a GPU breaking?",
    "Errors by kind. uncorrected, xid and row_remap_failure fire an alert at the first one: leave "
    "the node. corrected ones and replays are told so that a growing number is seen.",
    "none",
    (
        prom(
            f"sum by ({_GPU}, error_type) ({increase('hw.errors', THE_RANKS)})",
            f"{_LEGEND} {{{{error_type}}}}",
        ),
        prom(f"sum({increase('hw.errors', THE_RANKS)})", "all"),
    ),
    decimals=0,
    least=0,
)
LOST = Panel(
    "Has the driver lost a GPU?",
    "GPUs of the chosen ranks that are well, and those the driver has lost.",
    "none",
    (prom(f"sum by (hw_state) ({select('costlens.gpu.state', THE_RANKS)})", "{{hw_state}}"),),
    decimals=0,
    least=0,
)
GPUS = Panel(
    "Which GPUs are these?",
    "Each rank's device with its serial number and place, for whoever has to find it in the rack. "
    "What a device does not support has no number anywhere on this page.",
    "none",
    (
        prom(
            f"max by ({RANK}, host_name, hw_name, hw_id, hw_serial_number, costlens_gpu_pci_id, "
            f"costlens_gpu_driver) ({select('costlens.run.info', THE_RANKS)})",
            is_instant=True,
        ),
        prom(f"avg by ({RANK}) ({select('hw.gpu.utilization', THE_RANKS)})", is_instant=True),
        prom(f"max by ({RANK}) ({select('hw.temperature', THE_RANKS, _CHIP)})", is_instant=True),
        prom(f"sum by ({RANK}) ({over_range('hw.errors', THE_RANKS)})", is_instant=True),
    ),
    kind="table",
    width=24,
    height=7,
    columns={
        RANK: Column("rank"),
        "host_name": Column("host"),
        "hw_name": Column("GPU"),
        "hw_id": Column("id"),
        "hw_serial_number": Column("serial number"),
        "costlens_gpu_pci_id": Column("PCI"),
        "costlens_gpu_driver": Column("driver"),
        "Value #B": Column("busy", "percentunit", 0),
        "Value #C": Column("chip", "celsius", 0),
        "Value #D": Column("errors", decimals=0),
    },
    sort="errors",
)

"""Recording rules that give dcgm-exporter's numbers the names and units of ours.

For sites that run dcgm-exporter, and for what a rank cannot ask of the driver itself. A GPU belongs
to the run that names it by its UUID.
"""

from __future__ import annotations

from grafana.alerts.model import Recording

__all__ = ["DCGM_RECORDINGS"]


def _of_run(expr: str) -> str:
    """Return a query over dcgm-exporter's labels with the labels of the run that has the GPU."""
    return f"""max by (costlens_run_id, costlens_rank, hw_id) (
  label_replace({expr}, "hw_id", "$1", "UUID", "(.+)")
  * on (hw_id) group_left (costlens_run_id, costlens_rank)
  gpu:dcgm_run:info
)"""


DCGM_RECORDINGS: tuple[Recording, ...] = (
    Recording(
        "gpu:dcgm_run:info",
        """topk by (hw_id) (1,
  group by (costlens_run_id, costlens_rank, hw_id) (costlens_run_info{hw_id!=""})
  or
  group by (costlens_run_id, costlens_rank, hw_id) (hw_gpu_memory_limit_bytes)
)""",
        "Which run has a GPU.",
    ),
    Recording(
        "gpu:dcgm_utilization:ratio",
        _of_run("max by (UUID) (DCGM_FI_DEV_GPU_UTIL) / 100"),
        "Per cent as a ratio.",
    ),
    Recording(
        "gpu:dcgm_memory:ratio",
        _of_run(
            "max by (UUID) (DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE))"
        ),
        "Used MiB over used and free MiB.",
    ),
    Recording(
        "gpu:dcgm_power:watts",
        _of_run("max by (UUID) (DCGM_FI_DEV_POWER_USAGE)"),
        "Watts.",
    ),
    Recording(
        "gpu:dcgm_temperature:celsius",
        _of_run("max by (UUID) (DCGM_FI_DEV_GPU_TEMP)"),
        "Degrees Celsius.",
    ),
    Recording(
        "gpu:dcgm_energy:joules",
        _of_run("max by (UUID) (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION) / 1000"),
        "Millijoules since the machine booted, as joules.",
    ),
    Recording(
        "gpu:dcgm_xid:changes15m",
        """label_replace("""
        + _of_run(
            "max by (UUID) (changes(DCGM_FI_DEV_XID_ERRORS[$rare])"
            " * (DCGM_FI_DEV_XID_ERRORS > bool 0))"
        )
        + """, "error_type", "xid", "", "")""",
        "The exporter shows the code of the last XID: only a change to one is news.",
    ),
)

"""Variables of launchers and schedulers that do not fit together."""

from __future__ import annotations

import pytest

from costlens.observe.placement.contradictions import find_contradictions, seen_variables

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        TORCHRUN,
        SRUN,
        {**SRUN, "RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {**SRUN, **TORCHRUN, "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1"},
        {**TORCHRUN, "CUDA_VISIBLE_DEVICES": "0,1"},
        {**TORCHRUN, "CUDA_VISIBLE_DEVICES": "0"},
    ],
)
def test_what_launchers_set_is_no_contradiction(environ: dict[str, str]) -> None:
    """Nothing, torchrun, srun, a script between them, torchrun inside Slurm, Lightning's own."""
    assert find_contradictions(environ) == []


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"RANK": "0"}, "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and RANK is not"),
        ({**TORCHRUN, "RANK": "4"}, "RANK is 4 and WORLD_SIZE is 4: ranks count from 0"),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2"),
        ({**TORCHRUN, "MASTER_PORT": ""}, "MASTER_PORT is not set: the ranks cannot meet"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({**TORCHRUN, "WORLD_SIZE": "four"}, "WORLD_SIZE is 'four', which is no number"),
        ({**SRUN, "RANK": "0", "WORLD_SIZE": "4"}, "RANK is 0 and SLURM_PROCID is 1"),
        ({**SRUN, "WORLD_SIZE": "8", "RANK": "1"}, "WORLD_SIZE is 8 and SLURM_NTASKS is 4"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, "this process is none of them"),
        (
            {**TORCHRUN, "LOCAL_WORLD_SIZE": "4", "CUDA_VISIBLE_DEVICES": "0,1"},
            "LOCAL_WORLD_SIZE is 4 and CUDA_VISIBLE_DEVICES names 2",
        ),
    ],
)
def test_a_contradiction_is_named_with_what_mends_it(environ: dict[str, str], told: str) -> None:
    """Variables and numbers are told, and what to do."""
    found = find_contradictions(environ)
    assert any(told in text for text, _ in found), found
    assert all(fix for _, fix in found)


def test_only_names_of_known_variables_are_told() -> None:
    """What else is in the environment is nobody's business."""
    environ = {**TORCHRUN, "SECRET_TOKEN": "x", "HOME": "/root", "SLURM_JOB_ID": "7"}
    assert seen_variables(environ) == sorted([*TORCHRUN, "SLURM_JOB_ID"])

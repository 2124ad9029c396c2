"""Which job a process runs in, as Slurm, Kubernetes, Ray and the cloud tell it without the network.

Environments of Slurm and Ray are recorded from real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from costlens.core.job_records import MAX_TEXT, JobPart
from costlens.observe.placement import cloud, detect_placement, kubernetes
from costlens.observe.placement.cloud import find_cloud
from costlens.observe.placement.job import detect_job, identify
from tests.unit.observe.recordings import read_environment


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the pod and the cloud that the tests may run in."""
    monkeypatch.setattr(kubernetes, "_NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setattr(kubernetes, "PODINFO", tmp_path / "podinfo")
    monkeypatch.setattr(cloud, "DMI", tmp_path)


def found(environ: Mapping[str, str]) -> JobPart:
    """Return the job of an environment that has one."""
    part = detect_job(environ)
    assert part is not None
    return part


# Slurm.


def test_a_task_of_srun_knows_its_rank_and_its_job() -> None:
    """The step tells rank and world, the job the rest; the times come from elsewhere."""
    placement = detect_placement(read_environment("slurm_step.env"))
    assert placement.launcher == "slurm"
    assert (placement.rank, placement.local_rank, placement.node_rank) == (1, 1, 0)
    assert (placement.world_size, placement.local_world_size) == (2, 2)
    assert placement.job_id == "1"
    part = placement.job
    assert part is not None
    assert (part.scheduler, part.job_id, part.name, part.queue) == ("slurm", "1", "probe", "train")
    assert (part.step, part.restart_count, part.node) == ("0", 0, "vm")
    assert (part.submit_time, part.start_time, part.num_gpus) == (None, None, None)


def test_a_batch_script_is_one_process_whatever_was_allocated() -> None:
    """Without srun nobody launches the other tasks of an allocation."""
    environ = {**read_environment("slurm_batch.env"), "SLURM_NTASKS": "8"}
    placement = detect_placement(environ)
    assert (placement.launcher, placement.rank, placement.world_size) == ("none", 0, 1)
    assert placement.job is not None
    assert placement.job.job_id == "1"


def test_an_interactive_step_is_no_launch() -> None:
    """Its number is one of those that Slurm keeps for itself."""
    environ = {**read_environment("slurm_step.env"), "SLURM_STEP_ID": str(0xFFFFFFFA)}
    assert detect_placement(environ).launcher == "none"


def test_tasks_of_a_node_are_read_from_the_short_form() -> None:
    """Nodes 0 and 1 have 4 tasks, nodes 2 to 4 two, node 5 one."""
    step = read_environment("slurm_step.env") | {
        "SLURM_STEP_NUM_TASKS": "15",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2),2(x3),1",
    }
    tasks = [
        detect_placement(step | {"SLURM_NODEID": str(node)}).local_world_size for node in range(6)
    ]
    assert tasks == [4, 4, 2, 2, 2, 1]
    for broken in ("", "x", "4(x", "99999999999999(x1)"):
        odd = detect_placement(step | {"SLURM_STEP_TASKS_PER_NODE": broken})
        assert odd.local_world_size == 1


def test_a_task_of_an_array_is_a_job_of_its_own() -> None:
    """Its id is not the array's, so that two tasks are two runs; all its ranks agree."""
    environ = read_environment("slurm_array.env")
    placement = detect_placement(environ)
    assert placement.job_id == environ["SLURM_JOB_ID"] != environ["SLURM_ARRAY_JOB_ID"]
    assert placement.job is not None
    assert placement.job.task == "0"


def test_a_job_that_was_queued_again_is_the_same_run_and_another_launch() -> None:
    """C026: the restart count enters the launch key, never the identity of the run."""
    first = read_environment("slurm_step.env")
    again = first | {"SLURM_RESTART_COUNT": "1"}
    before, after = detect_placement(first), detect_placement(again)
    assert before.job_id == after.job_id
    assert before.launch_key != after.launch_key
    assert found(read_environment("slurm_requeued.env")).restart_count == 1


def test_steps_of_one_job_are_launches_of_their_own() -> None:
    """A script that calls srun twice launches twice; the ranks of each call share a key."""
    first = read_environment("slurm_step.env")
    assert detect_placement(first).launch_key == (
        detect_placement(first | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}).launch_key
    )
    second = detect_placement(first | {"SLURM_STEP_ID": "1"})
    assert second.launch_key != detect_placement(first).launch_key


def test_torchrun_inside_slurm_keeps_its_ranks_and_gets_the_job() -> None:
    """The launcher gives ranks, the scheduler facts."""
    environ = read_environment("slurm_batch.env") | {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "node-0",
        "MASTER_PORT": "4242",
        "TORCHELASTIC_RUN_ID": "x",
    }
    placement = detect_placement(environ)
    assert (placement.launcher, placement.rank, placement.world_size) == ("torchrun", 3, 4)
    assert placement.job_id == "1"
    alone = {name: value for name, value in environ.items() if not name.startswith("SLURM")}
    assert placement.launch_key == detect_placement(alone).launch_key


def test_a_script_that_sets_rank_from_srun_gets_node_and_launch_from_the_step() -> None:
    """It keeps one port for ever, so the port cannot tell two launches apart."""
    step = read_environment("slurm_step.env")
    own = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "vm", "MASTER_PORT": "29500"}
    placement = detect_placement(step | own)
    assert (placement.local_rank, placement.local_world_size) == (1, 2)
    again = detect_placement(step | own | {"SLURM_RESTART_COUNT": "1"})
    assert again.launch_key != placement.launch_key


def test_gpus_and_start_are_told_where_slurm_tells_them() -> None:
    """Newer releases tell the start; a reservation of Slurm's says nothing of how it was bought."""
    environ = read_environment("slurm_step.env") | {
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_START_TIME": "1796030808",
        "SLURM_JOB_RESERVATION": "big-run",
    }
    part = found(environ)
    assert (part.num_gpus, part.start_time, part.times_from) == (8, 1796030808.0, "environment")
    assert part.capacity_type is None


# Kubernetes.

JOBSET_LABELS = """\
batch.kubernetes.io/controller-uid="3c4f0a52-7c1b-4a4e-9d55-0f0a4a4f3f11"
batch.kubernetes.io/job-completion-index="2"
batch.kubernetes.io/job-name="train-workers-0"
jobset.sigs.k8s.io/job-global-index="0"
jobset.sigs.k8s.io/jobset-name="train"
jobset.sigs.k8s.io/jobset-uid="0b9c7c2e-5a0f-4c6e-a9a4-3c1c8a2d9f10"
jobset.sigs.k8s.io/restart-attempt="1"
kueue.x-k8s.io/queue-name="team-a"
topology.kubernetes.io/region="eu-west-1"
node.kubernetes.io/instance-type="p5.48xlarge"
karpenter.sh/capacity-type="spot"
"""
POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "POD_NAME": "train-workers-0-2-x7k",
    "POD_NAMESPACE": "research",
    "POD_UID": "f3f2c1de-0000-4000-8000-000000000002",
    "NODE_NAME": "node-7",
}


def make_podinfo(folder: Path, labels: str, annotations: str = "") -> Path:
    """Return a downward volume with these files."""
    folder.mkdir()
    (folder / "labels").write_text(labels)
    (folder / "annotations").write_text(annotations)
    return folder


def in_pod(tmp_path: Path, labels: str, **more: str) -> tuple[JobPart, Mapping[str, str]]:
    """Return the job of a pod with these labels, and its environment."""
    make_podinfo(tmp_path / "podinfo", labels)
    environ = {**POD, **more}
    return found(environ), environ


def test_a_pod_of_a_jobset_tells_all_from_its_downward_volume(tmp_path: Path) -> None:
    """The JobSet is the job, not the Jobs it makes; queue, cloud and spot are labels."""
    part, _ = in_pod(tmp_path, JOBSET_LABELS)
    assert (part.scheduler, part.job_id, part.queue) == ("kubernetes", "train", "team-a")
    assert (part.pod, part.namespace, part.node) == ("train-workers-0-2-x7k", "research", "node-7")
    assert (part.restart_count, part.task) == (1, "0-2")
    assert (part.region, part.instance_type, part.capacity_type) == (
        "eu-west-1",
        "p5.48xlarge",
        "spot",
    )


def test_pods_of_one_job_are_one_run_and_a_job_that_comes_again_is_another(
    tmp_path: Path,
) -> None:
    """The uid of the JobSet tells two of one name apart; pods, Jobs and restarts do not count."""
    part, _ = in_pod(tmp_path, JOBSET_LABELS)
    restarted = part.model_copy(
        update={"restart_count": 2, "pod": "other", "pod_uid": "x", "task": "0-1"}
    )
    assert identify(part, 8) == identify(restarted, 8) == "train-0b9c7c2e"
    assert identify(part.model_copy(update={"job_uid": "77777777"}), 8) == "train-77777777"


def test_a_jobset_that_starts_again_is_a_new_launch_for_ranks_with_a_fixed_port(
    tmp_path: Path,
) -> None:
    """C026: addresses and ports are the same again; torchelastic's own keys are left alone."""
    ranks = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "train-0", "MASTER_PORT": "29500"}
    _, environ = in_pod(tmp_path, "", **ranks)
    keys = [
        detect_placement({**environ, "JOBSET_NAME": "t", "JOBSET_RESTART_ATTEMPT": n}).launch_key
        for n in "0112"
    ]
    assert keys[1] == keys[2]
    assert len({*keys}) == 3
    elastic = {**environ, "TORCHELASTIC_RUN_ID": "x", "JOBSET_RESTART_ATTEMPT": "1"}
    assert "start" not in (detect_placement(elastic).launch_key or "")


def test_where_each_pod_of_an_indexed_job_trains_alone_each_is_a_run(tmp_path: Path) -> None:
    """A sweep over completion indexes: the index enters the identity, for one rank only."""
    labels = 'batch.kubernetes.io/job-name="sweep"\nbatch.kubernetes.io/controller-uid="abcdef0123"'
    part, environ = in_pod(tmp_path, labels, JOB_COMPLETION_INDEX="3")
    assert detect_placement(environ).job_id == "sweep-abcdef01-3"
    assert identify(part, 4) == "sweep-abcdef01"


def test_variables_alone_are_enough() -> None:
    """Without a volume the template's variables and OpenTelemetry's attributes tell the pod."""
    told = "k8s.pod.name=p-1,k8s.namespace.name=research,k8s.node.name=n1,k8s.job.name=train"
    part = found({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "OTEL_RESOURCE_ATTRIBUTES": told})
    assert (part.pod, part.namespace, part.node) == ("p-1", "research", "n1")
    assert (part.job_id, part.queue, part.restart_count) == ("train", None, None)


def test_a_pod_without_a_job_is_known_by_its_uid() -> None:
    """Its container may be started again in place: that is the same run."""
    part = found(POD)
    assert (part.job_id, identify(part, 1), identify(part, 2)) == (None, POD["POD_UID"], None)


def test_a_listed_device_was_given_and_a_word_was_not() -> None:
    """The device plugin lists the devices of the container; an image may say "all"."""
    assert found({**POD, "NVIDIA_VISIBLE_DEVICES": "GPU-1a,GPU-2b"}).num_gpus == 2
    for word in ("all", "none", "void", "", "0,1"):
        assert found({**POD, "NVIDIA_VISIBLE_DEVICES": word}).num_gpus is None


def test_labels_are_read_as_the_kubelet_writes_them(tmp_path: Path) -> None:
    """Values are quoted, and quotes in them escaped; other lines are passed over."""
    podinfo = make_podinfo(
        tmp_path / "podinfo",
        'a/b="c"\nempty=""\nbroken\nx="y',
        'note="say \\"hi\\", a=b"\n',
    )
    labels = kubernetes.read_downward(podinfo / "labels")
    assert labels == {"a/b": "c", "empty": ""}
    assert kubernetes.read_downward(podinfo / "annotations") == {"note": 'say "hi", a=b'}
    assert kubernetes.read_downward(podinfo / "none") == {}


# Ray.


def test_a_worker_of_ray_train_knows_its_rank_and_rays_job() -> None:
    """Recorded from Ray: its variables are torchrun's; its job id says nothing beyond a cluster."""
    placement = detect_placement(read_environment("ray_train.env"))
    assert (placement.launcher, placement.rank, placement.world_size) == ("ray", 1, 2)
    assert (placement.local_rank, placement.local_world_size) == (1, 2)
    assert placement.job is not None
    assert (placement.job.scheduler, placement.job.job_id) == ("ray", "01000000")
    assert placement.job_id is None


def test_a_submitted_job_of_ray_names_the_run() -> None:
    """A submission id is given once."""
    environ = read_environment("ray_train.env") | {"RAY_JOB_SUBMISSION_ID": "raysubmit_Ab3"}
    assert detect_placement(environ).job_id == "raysubmit_Ab3"


def test_ray_in_a_pod_has_its_own_job_and_the_pods_place() -> None:
    """Each fact comes from the innermost that tells it; no id is made of two jobs."""
    labels = {"JOB_NAME": "head", "JOB_UID": "123", "RAY_JOB_ID": "02000000"}
    part = found({**POD, **labels})
    assert (part.scheduler, part.job_id, part.job_uid) == ("ray", "02000000", None)
    assert (part.pod, part.namespace) == (POD["POD_NAME"], "research")


# No scheduler, hostile values, the cloud.


def test_outside_a_scheduler_there_is_no_job() -> None:
    """C143: absent, not empty."""
    assert detect_job({}) is None
    assert detect_placement({}).job is None
    assert identify(None, 1) is None


def test_long_and_odd_values_are_bounded() -> None:
    """A variable may hold anything; the record stays small and valid."""
    environ = read_environment("slurm_step.env") | {
        "SLURM_JOB_NAME": "x" * 10_000,
        "SLURM_RESTART_COUNT": "-1",
        "SLURM_GPUS_ON_NODE": "9" * 30,
        "SLURM_JOB_START_TIME": "9" * 30,
        "SKYPILOT_CLUSTER_INFO": "[" * 10_000,
    }
    part = found(environ)
    assert part.name == "x" * MAX_TEXT
    assert (part.restart_count, part.num_gpus, part.start_time) == (0, 10_000, None)
    assert detect_job(environ | {"SLURM_JOB_ID": "no number"}) is None


def test_the_cloud_is_known_from_the_firmware_and_a_region_only_with_it(tmp_path: Path) -> None:
    """A region variable alone may be that of a bucket; Hyper-V alone is not Azure."""
    region = {"AWS_REGION": "us-east-1"}
    (tmp_path / "sys_vendor").write_text("Microsoft Corporation\n")
    assert find_cloud(region, {}) == dict.fromkeys(
        ("provider", "region", "instance_type", "capacity_type")
    )
    (tmp_path / "chassis_asset_tag").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert find_cloud(region, {})["provider"] == "azure"
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    facts = find_cloud(region, {})
    assert (facts["provider"], facts["region"]) == ("aws", "us-east-1")


def test_what_was_told_goes_before_what_was_found() -> None:
    """OpenTelemetry's attributes, then SkyPilot, then labels."""
    sky = '{"cluster_name": "c", "cloud": "GCP", "region": "us-central1"}'
    environ = {"SKYPILOT_CLUSTER_INFO": sky}
    labels = {"topology.kubernetes.io/region": "label", "eks.amazonaws.com/capacityType": "SPOT"}
    facts = find_cloud(environ, labels)
    assert (facts["provider"], facts["region"], facts["capacity_type"]) == (
        "gcp",
        "us-central1",
        "spot",
    )
    environ["OTEL_RESOURCE_ATTRIBUTES"] = "cloud.provider=azure,cloud.region=westeurope"
    facts = find_cloud(environ, labels)
    assert (facts["provider"], facts["region"]) == ("azure", "westeurope")

"""The templates for Kubernetes: valid for its schemas, and telling a pod all that detectors read.

Job, JobSet and TrainJob are checked against the models of kubeflow-trainer-api, which are generated
from the OpenAPI descriptions of all three. PyTorchJob's own part is checked against what its CRD
(kubeflow/trainer, manifests/base/crds, training operator 1.9) allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubeflow_trainer_api import models
from pydantic import BaseModel

from costlens.config import Config
from costlens.core.job_records import JobPart
from costlens.observe.placement import cloud, detect_placement, kubernetes

FOLDER = Path(__file__).parents[3] / "integrations" / "kubernetes"
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.yaml"))
MODELS: dict[str, type[BaseModel]] = {
    "Job": models.IoK8sApiBatchV1Job,
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
PYTORCH_JOB = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "spec": {
            "type": "object",
            "required": ["pytorchReplicaSpecs"],
            "additionalProperties": False,
            "properties": {
                "nprocPerNode": {"type": "string"},
                "elasticPolicy": {"type": "object"},
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "activeDeadlineSeconds": {"type": "integer"},
                        "backoffLimit": {"type": "integer"},
                        "cleanPodPolicy": {"type": "string"},
                        "managedBy": {"type": "string"},
                        "schedulingPolicy": {"type": "object"},
                        "suspend": {"type": "boolean"},
                        "ttlSecondsAfterFinished": {"type": "integer"},
                    },
                },
                "pytorchReplicaSpecs": {
                    "type": "object",
                    "propertyNames": {"enum": ["Master", "Worker"]},
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "replicas": {"type": "integer"},
                            "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
                            "template": {"type": "object"},
                        },
                    },
                },
            },
        },
    },
}

# Labels that the controllers give to a pod of each kind.
LABELS = {
    "Job": {
        "batch.kubernetes.io/job-name": "train-x7k",
        "batch.kubernetes.io/controller-uid": "0b9c7c2e-5a0f",
        "kueue.x-k8s.io/queue-name": "team-a",
    },
    "JobSet": {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": "0b9c7c2e-5a0f",
        "jobset.sigs.k8s.io/restart-attempt": "2",
        "kueue.x-k8s.io/queue-name": "team-a",
    },
    "PyTorchJob": {
        "training.kubeflow.org/job-name": "train-x7k",
        "kueue.x-k8s.io/queue-name": "team-a",
    },
}
LABELS["TrainJob"] = {k: v for k, v in LABELS["JobSet"].items() if "kueue" not in k}
FIELDS = {
    "metadata.name": "train-0",
    "metadata.namespace": "research",
    "metadata.uid": "f3f2c1de",
    "spec.nodeName": "node-7",
}


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the pod and the cloud that the tests may run in."""
    monkeypatch.setattr(kubernetes, "_NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setattr(kubernetes, "PODINFO", tmp_path / "podinfo")
    monkeypatch.setattr(cloud, "DMI", tmp_path)


def load(name: str) -> dict[str, Any]:
    """Return a template."""
    (document,) = yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    return dict(document)


def check(document: Mapping[str, Any], model: type[BaseModel]) -> None:
    """Fail where a document has a value that its model refuses, or a field it does not know."""
    parsed = model.from_dict(document)  # type: ignore[attr-defined]
    assert parsed.to_dict() == document


def containers(document: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a document that has an environment."""
    if isinstance(document, list):
        for item in document:
            yield from containers(item)
    elif isinstance(document, dict):
        if "env" in document:
            yield document
        for value in document.values():
            yield from containers(value)


def environment(container: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a container as the kubelet resolves them."""
    found = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for entry in container["env"]:
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
        found[entry["name"]] = (
            labels.get(label[1], "") if label else FIELDS[path] if path else entry["value"]
        )
    return found


def test_there_is_a_template_for_each_kind() -> None:
    """Those that the README names."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`([a-z]+\.yaml)`", readme)) == TEMPLATES
    assert {load(name)["kind"] for name in TEMPLATES} == {*MODELS, "PyTorchJob"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_valid(name: str) -> None:
    """No field that the API does not know, none of a wrong type."""
    document = load(name)
    if document["kind"] in MODELS:
        check(document, MODELS[document["kind"]])
        return
    jsonschema.validate(document, PYTORCH_JOB)
    for replica in document["spec"]["pytorchReplicaSpecs"].values():
        check(replica["template"], models.IoK8sApiCoreV1PodTemplateSpec)


def test_a_misspelt_field_is_found() -> None:
    """The check above would see it."""
    document = load("job.yaml")
    pod = document["spec"]["template"]["spec"]
    pod["terminationGracePeriodSecond"] = pod.pop("terminationGracePeriodSeconds")
    with pytest.raises(AssertionError):
        check(document, models.IoK8sApiBatchV1Job)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_tells_a_pod_its_place(name: str) -> None:
    """Pod, namespace, node, job, queue and restarts arrive in the record."""
    document = load(name)
    labels = LABELS[document["kind"]]
    found = [*containers(document)]
    assert found
    for container in found:
        part = detect_placement(environment(container, labels)).job
        assert isinstance(part, JobPart)
        assert (part.pod, part.pod_uid) == ("train-0", "f3f2c1de")
        assert (part.namespace, part.node) == ("research", "node-7")
        assert part.job_id in {"train", "train-x7k"}
        assert part.queue == labels.get("kueue.x-k8s.io/queue-name")
        restarts = labels.get("jobset.sigs.k8s.io/restart-attempt")
        assert part.restart_count == (None if restarts is None else int(restarts))


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_submission_is_filled_in_by_the_line_in_the_template(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the variable is empty, which counts as not set."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    (line,) = re.findall(r's/(value: \\"\\"\} # submitted)/', text)
    before = line.replace("\\", "")
    num_containers = len([*containers(load(name))])
    assert text.count(before) == num_containers
    monkeypatch.setenv("COSTLENS_JOB_SUBMIT_TIME", "")
    assert Config().job_times == {}
    filled = yaml.safe_load(text.replace(before, 'value: "1796030805"}'))
    for container in containers(filled):
        monkeypatch.setenv("COSTLENS_JOB_SUBMIT_TIME", environment(container, {})[SUBMITTED])
        assert Config().job_times == {"submit_time": 1796030805.0}
    assert all(f"export {STARTED}=$(date +%s)" in c["args"][0] for c in containers(filled))


SUBMITTED, STARTED = "COSTLENS_JOB_SUBMIT_TIME", "COSTLENS_JOB_START_TIME"

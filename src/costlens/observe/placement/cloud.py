"""The cloud: provider, region, kind of machine and how it was bought, as far as this host tells.

From OpenTelemetry's resource attributes, SkyPilot's variable, labels of the pod and the firmware's
name for the machine; a metadata service would be the network, and is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from costlens.observe.placement.text import cut, read_pairs, read_small

__all__ = ["DMI", "CloudFacts", "find_cloud"]

CloudFacts = dict[str, str | None]

DMI = Path("/sys/class/dmi/id")
"""Where the kernel shows what the firmware says of the machine."""

_VENDORS = {"amazon ec2": "aws", "google": "gcp"}
# Microsoft's hypervisor runs elsewhere, too: only Azure carries this tag.
_ASSET_TAGS = {"7783-7084-3265-9085-8269-3286-77": "azure", "oraclecloud.com": "oci"}
_REGION_VARIABLES = {"aws": ("AWS_REGION", "AWS_DEFAULT_REGION"), "gcp": ("CLOUD_ML_REGION",)}

_REGION_LABEL = "topology.kubernetes.io/region"
_INSTANCE_LABEL = "node.kubernetes.io/instance-type"
# Labels of nodes; a template copies them to the pod, for pods cannot see their node's.
_CAPACITY_LABELS = {
    "karpenter.sh/capacity-type": {
        "spot": "spot",
        "on-demand": "on_demand",
        "reserved": "reserved",
    },
    "eks.amazonaws.com/capacityType": {
        "SPOT": "spot",
        "ON_DEMAND": "on_demand",
        "CAPACITY_BLOCK": "reserved",
    },
    "cloud.google.com/gke-spot": {"true": "spot"},
    "cloud.google.com/gke-provisioning": {"spot": "spot", "standard": "on_demand"},
    "kubernetes.azure.com/scalesetpriority": {"spot": "spot", "regular": "on_demand"},
}


def find_cloud(environ: Mapping[str, str], labels: Mapping[str, str]) -> CloudFacts:
    """Return ``provider region instance_type capacity_type``, each None where nobody tells it.

    Args:
        environ: The environment.
        labels: Labels and annotations of the pod; empty outside Kubernetes.
    """
    told = read_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    sky = _read_skypilot(environ.get("SKYPILOT_CLUSTER_INFO", ""))
    provider = told.get("cloud.provider") or sky.get("cloud") or _find_vendor()
    provider = provider.lower() if provider else None
    # A region alone may be that of a bucket: it counts where the provider is known otherwise.
    variables = _REGION_VARIABLES.get(provider or "", ())
    set_region = next((environ[name] for name in variables if environ.get(name)), None)
    region = told.get("cloud.region") or sky.get("region") or labels.get(_REGION_LABEL)
    return {
        "provider": cut(provider),
        "region": cut(region or set_region),
        "instance_type": cut(told.get("host.type") or labels.get(_INSTANCE_LABEL)),
        "capacity_type": _find_capacity(labels),
    }


def _read_skypilot(text: str) -> dict[str, str]:
    try:
        known = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    pairs = known.items() if isinstance(known, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def _find_vendor() -> str | None:
    vendor = (read_small(DMI / "sys_vendor") or "").lower()
    tag = (read_small(DMI / "chassis_asset_tag") or "").lower()
    return _VENDORS.get(vendor) or _ASSET_TAGS.get(tag)


def _find_capacity(labels: Mapping[str, str]) -> str | None:
    found = (words.get(labels.get(name, "")) for name, words in _CAPACITY_LABELS.items())
    return next((word for word in found if word is not None), None)

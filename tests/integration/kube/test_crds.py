"""The real API server takes our definitions, takes good objects, refuses bad ones and names the field."""

from __future__ import annotations

import copy
import secrets
from typing import Any

import pytest

from support.kube_world import MANAGER, eventually
from trellis.crds.kinds import KINDS, make_definition
from trellis.crds.shim import Shim
from trellis.kube.client import Kube
from trellis.kube.errors import Invalid
from trellis.kube.resources import DEFINITIONS, SHIMS, Manifest

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

SHA256 = "ab" * 32

AS_RECORDED: dict[str, Any] = {
    "nodeSelector": {"spin": "true"},
    "fetchStrategy": {"type": "annonymousHttp", "anonHttp": {"location": "https://example.com/shim.tar.gz"}},
    "runtimeClass": {"name": "wasmtime-spin-v2", "handler": "spin"},
    "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 5}},
}
WITH_OURS: dict[str, Any] = {
    "containerdRuntimeOptions": {"SystemdCgroup": "true"},
    "fetchStrategy": {
        "platforms": [{"os": "linux", "arch": "aarch64", "location": "https://example.com/a.tgz", "sha256": SHA256}],
        "oci": {"image": f"example.com/shim@sha256:{SHA256}", "pullSecret": {"name": "registry"}},
    },
    "runtimeClass": {"name": "spin", "handler": "spin", "overhead": {"podFixed": {"memory": "16Mi", "cpu": 1}}},
    "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": "10%", "pauseOnFailures": 3}},
    "paused": True,
    "verify": {"canary": True, "canaryImage": "example.com/canary", "timeout": "90s"},
    "removalPolicy": "Drain",
    "startupTaint": {"key": "trellis.dev/not-ready", "effect": "NoSchedule"},
}


def shim(spec: dict[str, Any], **changes: Any) -> Manifest:
    """Return a Shim; a change names a field by its path, with ``__`` for dots, and None removes it."""
    spec = copy.deepcopy(spec)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = spec
        for parent in parents:
            node = node[parent]
        if value is None:
            del node[last]
        else:
            node[last] = value
    return {
        "apiVersion": SHIMS.api_version,
        "kind": SHIMS.kind,
        "metadata": {"name": f"test-{secrets.token_hex(4)}"},
        "spec": spec,
    }


@pytest.fixture
async def defined(kube: Kube) -> Kube:
    """The connection, once the API server serves our kinds."""
    for kind in KINDS:
        await kube.apply(DEFINITIONS, make_definition(kind), field_manager=MANAGER, create_if_missing=True)
        await eventually(lambda name=kind.name: _established(kube, name), f"{kind.name} is served")
    return kube


async def _established(kube: Kube, name: str) -> bool:
    definition = await kube.get(DEFINITIONS, name)
    # The server says null until its controllers have looked at the definition.
    conditions = {c["type"]: c for c in definition.get("status", {}).get("conditions") or []}
    not_structural = conditions.get("NonStructuralSchema", {})
    assert not_structural.get("status") != "True", not_structural
    return conditions.get("Established", {}).get("status") == "True"


@pytest.mark.parametrize("spec", [AS_RECORDED, WITH_OURS], ids=["as recorded", "with every field of ours"])
async def test_a_good_object_is_kept_as_it_is_and_read_by_the_model(defined: Kube, spec: dict[str, Any]) -> None:
    made = await defined.create(SHIMS, shim(spec))
    try:
        assert made["spec"] == spec
        read = Shim.model_validate(made).spec
        assert read is not None
        assert read.model_dump(by_alias=True, exclude_none=True, mode="json") == spec
    finally:
        await defined.delete(SHIMS, made["metadata"]["name"], uid=made["metadata"]["uid"])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"runtimeClass": None}, "spec.runtimeClass: Required"),
        ({"fetchStrategy__anonHttp__location": None}, "spec.fetchStrategy.anonHttp.location: Required"),
        ({"fetchStrategy__anonHttp__sha256": "abc"}, "spec.fetchStrategy.anonHttp.sha256"),
        ({"fetchStrategy__platforms": [{"os": "linux", "arch": "riscv", "location": "x"}]}, "platforms[0].arch"),
        ({"rolloutStrategy__type": "bluegreen"}, "spec.rolloutStrategy.type"),
        ({"rolloutStrategy__rolling__maxUpdate": "200%"}, "spec.rolloutStrategy.rolling.maxUpdate"),
        ({"removalPolicy": "Perhaps"}, "spec.removalPolicy"),
        ({"verify": {"timeout": "soon"}}, "spec.verify.timeout"),
        ({"fetchStrategy__oci": {"image": "r/x", "pullSecret": {"name": "../x"}}}, "oci.pullSecret.name"),
        (
            {"startupTaint": {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}},
            "belong to Kubernetes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_object_is_refused_and_the_field_is_named(
    defined: Kube, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await defined.create(SHIMS, shim(AS_RECORDED, **changes))
    assert named in str(refusal.value)

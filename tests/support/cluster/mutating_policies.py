"""Mutating admission policies of one test, in force from the moment that the block begins."""

from __future__ import annotations

import contextlib
import http
from collections.abc import AsyncIterator

from support.nodes.fleet import Fleet, Manifest, eventually

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_PROBED = "test.trellis.dev/probed"


def remove(path: str) -> Manifest:
    """Return the mutation that removes a field; ``path`` in CEL."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": f'[JSONPatch{{op: "remove", path: {path}}}]'}}


def put(path: str, value: str) -> Manifest:
    """Return the mutation that sets a field; ``path`` and ``value`` in CEL."""
    expression = f'[JSONPatch{{op: "add", path: {path}, value: {value}}}]'
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@contextlib.asynccontextmanager
async def mutating(fleet: Fleet, *mutations: Manifest) -> AsyncIterator[None]:
    """Have the API server change each installer Job of a fleet when it is created, for the time of a block."""
    name = f"mutate-{fleet.id}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": fleet.installers}}
    fleet.api.call("POST", "/api/v1/namespaces", namespace)
    place = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fleet.installers}}}
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    escaped = f'"/metadata/annotations/" + jsonpatch.escapeKey("{_PROBED}")'
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {**place, "resourceRules": [rule]},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            # The last one is seen by the probe below, which is no installer Job.
            "matchConditions": [{"name": "annotated", "expression": "has(object.metadata.annotations)"}],
            "mutations": [put(escaped, '"yes"')],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    ours = {
        **policy,
        "metadata": {"name": f"{name}-jobs"},
        "spec": {
            **policy["spec"],
            "matchConditions": [{"name": "ours", "expression": "!('probe' in object.metadata.annotations)"}],
            "mutations": list(mutations),
        },
    }
    bound = {**binding, "metadata": {"name": f"{name}-jobs"}, "spec": {"policyName": f"{name}-jobs"}}
    # A binding and its policy are seen together; the one made last is seen last.
    made = [("mutatingadmissionpolicies", ours), ("mutatingadmissionpolicybindings", bound)]
    made += [("mutatingadmissionpolicies", policy), ("mutatingadmissionpolicybindings", binding)]
    try:
        for plural, item in made:
            status, answer = fleet.api.call("POST", f"{_GROUP}/{plural}", item)
            assert status == http.HTTPStatus.CREATED, answer
        await eventually(lambda: _probed(fleet), "the policy is in force")
        yield
    finally:
        for plural, item in made:
            fleet.api.call("DELETE", f"{_GROUP}/{plural}/{item['metadata']['name']}")


def _probed(fleet: Fleet) -> bool:
    """Say whether a Job that is created now, and is not stored, is changed."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "example.com/probe"}]}
    probe = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "annotations": {"probe": "yes"}},
        "spec": {"template": {"spec": pod}},
    }
    status, made = fleet.api.call("POST", f"/apis/batch/v1/namespaces/{fleet.installers}/jobs?dryRun=All", probe)
    return status == http.HTTPStatus.CREATED and _PROBED in made["metadata"]["annotations"]

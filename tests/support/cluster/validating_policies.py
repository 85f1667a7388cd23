"""Validating admission policies of one test, in force from the moment that the block begins."""

from __future__ import annotations

import contextlib
import http
from collections.abc import AsyncIterator, Callable

from support.nodes.fleet import Fleet, Manifest, eventually

_GROUP = "/apis/admissionregistration.k8s.io/v1"


def rule(group: str, resource: str, *operations: str) -> Manifest:
    """Return the rule that a policy has for a resource of a group, in version v1."""
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": [resource]}


@contextlib.asynccontextmanager
async def refusing(
    fleet: Fleet,
    matched: Manifest,
    expected_text: str,
    only: str,
    in_force: Callable[[], bool],
    reason: str = "Invalid",
) -> AsyncIterator[None]:
    """Have the API server refuse, with these words, what matches a rule and a condition in CEL.

    ``in_force``: whether the API server refuses by now; ``reason``: of its answer, ``Forbidden`` as quotas have it.
    """
    name = f"refuse-{fleet.id}"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [matched]},
            "failurePolicy": "Fail",
            "matchConditions": [{"name": "only", "expression": only}],
            "validations": [{"expression": "false", "message": expected_text, "reason": reason}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    made = [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    try:
        for plural, item in made:
            status, answer = fleet.api.call("POST", f"{_GROUP}/{plural}", item)
            assert status == http.HTTPStatus.CREATED, answer
        await eventually(in_force, "the policy is in force")
        yield
    finally:
        for plural, _ in made:
            fleet.api.call("DELETE", f"{_GROUP}/{plural}/{name}")

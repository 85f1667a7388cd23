"""The missing permission, which a service reports for as long as something needs it."""

from __future__ import annotations

import pytest

from host_manager.permissions import CLUSTER, CONFINED, DEFINITION, WATCHED, Advice
from host_manager.settings import Settings
from support.suite.naming import lacking
from trellis.kube.errors import Call, Forbidden, KubeError, NotFound
from trellis.kube.permissions import MissingPermissions, Right, missing_right
from trellis.telemetry.health import Health

ME = "system:serviceaccount:trellis-system:trellis-host-manager"


def forbidden(message: str, kind: str = "ConfigMap", namespace: str = "team-a", name: str = "group") -> Forbidden:
    call = Call("PATCH", kind, f"{kind.lower()}s", namespace, name)
    return Forbidden(call, status=403, reason="Forbidden", message=message)


def lacks(verb: str, resource: str, group: str = "", namespace: str = "team-a") -> Forbidden:
    """Return an error in kube-apiserver's words."""
    place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    named = resource.partition("/")[0] + (f".{group}" if group else "")
    return forbidden(
        f'{named} "x" is forbidden: User "{ME}" cannot {verb} resource "{resource}" in API group "{group}"{place}',
        namespace=namespace,
    )


@pytest.mark.parametrize(
    ("error", "expected_text"),
    [
        (lacks("list", "pods"), "list pods in namespace team-a"),
        (lacks("get", "pods/log"), "get pods/log in namespace team-a"),
        (
            lacks("patch", "wasmcloudhostconfigs/status", "k8s.wasmcloud.dev"),
            "patch wasmcloudhostconfigs.k8s.wasmcloud.dev/status in namespace team-a",
        ),
        (
            lacks("watch", "deployments", "apps", namespace=""),
            "watch deployments.apps in all namespaces",
        ),
    ],
    ids=["core", "subresource", "group and subresource", "cluster"],
)
def test_a_missing_right_is_known_by_the_servers_words(error: Forbidden, expected_text: str) -> None:
    right = missing_right(error)
    assert right is not None
    assert (right.user, str(right)) == (ME, expected_text)


def test_a_role_that_would_give_more_than_one_has_is_a_missing_right() -> None:
    message = (
        f'roles.rbac.authorization.k8s.io "group" is forbidden: user "{ME}" (groups=["system:serviceaccounts"]) is '
        'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["services"]}'
    )
    right = missing_right(forbidden(message, kind="Role"))
    assert right is not None
    assert '{APIGroups:[""], Resources:["services"]}' in str(right)
    assert lacking(right, "Role group", "namespace team-a") == []


@pytest.mark.parametrize(
    "error",
    [
        forbidden('pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'),
        forbidden('configmaps "x" is forbidden: unable to create new content in a namespace that goes'),
        NotFound(Call("GET", "Pod", "pods"), status=404, reason="NotFound", message="cannot list resource"),
        ValueError("x"),
    ],
    ids=["quota", "namespace that goes", "not found", "no answer of a server"],
)
def test_another_refusal_is_no_missing_right(error: Exception) -> None:
    assert missing_right(error) is None


def test_a_right_is_missing_for_as_long_as_one_key_lacks_it() -> None:
    health = Health("tested")
    refusals = MissingPermissions(health, lambda right: f"grant {right.resource}")
    assert health.readiness().ok
    refusals.failed("team-a/one", lacks("patch", "configmaps"))
    refusals.failed("team-a/two", lacks("patch", "configmaps"))
    [reason] = health.readiness().reasons
    assert lacking(reason, ME, "patch configmaps", "namespace team-a", "grant configmaps") == []
    refusals.worked("team-a/one")
    assert not health.readiness().ok
    refusals.worked("team-a/two")
    assert health.readiness().ok


def test_a_key_that_lacks_the_next_right_has_the_former_one_by_now() -> None:
    health = Health("tested")
    refusals = MissingPermissions(health, str)
    refusals.failed("team-a/one", lacks("patch", "configmaps"))
    refusals.failed("team-a/one", lacks("patch", "secrets"))
    [reason] = health.readiness().reasons
    assert "secrets" in reason
    refusals.failed("team-a/one", ValueError("something else"))
    assert len(health.readiness().reasons) == 1, "whether the right is there by now nobody knows"


@pytest.mark.parametrize(
    ("confined", "right", "advice"),
    [
        ("", Right(ME, "list", "pods", ""), f"kubectl apply -f {CLUSTER}"),
        ("team-a", Right(ME, "list", "pods", "team-a"), f"kubectl -n team-a apply -f {WATCHED}"),
        ("team-a", Right(ME, "get", "leases.coordination.k8s.io", "trellis-system"), f"kubectl apply -f {CONFINED}"),
        ("trellis-system", Right(ME, "get", "pods", "trellis-system"), f"kubectl -n trellis-system apply -f {WATCHED}"),
        ("team-a", Right(ME, "list", "pods", ""), "TRELLIS_WATCH_NAMESPACES"),
    ],
)
def test_a_missing_permission_is_granted_by_one_command(confined: str, right: Right, advice: str) -> None:
    assert advice in Advice(Settings.model_validate({"watch_namespaces": confined})).remedy(right)


def test_a_kind_that_is_not_defined_is_defined_by_one_command() -> None:
    advice = Advice(Settings())
    missing = NotFound(
        Call("LIST", "WasmCloudHostConfig", "wasmcloudhostconfigs", "team-a"),
        status=404,
        reason="NotFound",
        message="x",
    )
    assert f"kubectl apply -f {DEFINITION}" in advice.describe_error(missing)
    deleted = NotFound(
        Call("GET", "WasmCloudHostConfig", "wasmcloudhostconfigs", "team-a", "group"),
        status=404,
        reason="NotFound",
        message="no such group",
    )
    assert advice.describe_error(deleted) == str(deleted)
    other: KubeError = lacks("list", "pods")
    assert advice.describe_error(other).endswith(advice.remedy(Right(ME, "list", "pods", "team-a")))

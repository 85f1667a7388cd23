"""Reading as somebody else: the API server decides, and a caller without rights learns nothing."""

from __future__ import annotations

import base64

import pytest

from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import ROLE_BINDINGS, ROLES, SECRETS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def account(namespace: str, name: str = "reader") -> str:
    return f"system:serviceaccount:{namespace}:{name}"


@pytest.fixture
async def secret(kube: Kube, namespace: str) -> str:
    """A Secret that every ServiceAccount of its namespace may read, by their group, and nobody else."""
    data = {"password": base64.b64encode(b"hunter2").decode()}
    metadata = {"name": "db", "namespace": namespace}
    await kube.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db", "gone"], "verbs": ["get"]}]
    await kube.create(ROLES, {"metadata": {"name": "read", "namespace": namespace}, "rules": rules})
    api = "rbac.authorization.k8s.io"
    group = {"kind": "Group", "apiGroup": api, "name": f"system:serviceaccounts:{namespace}"}
    binding = {"roleRef": {"kind": "Role", "apiGroup": api, "name": "read"}, "subjects": [group]}
    await kube.create(ROLE_BINDINGS, {"metadata": {"name": "read", "namespace": namespace}} | binding)
    return "db"


async def test_the_server_knows_the_groups_of_an_account(kube: Kube, namespace: str, secret: str) -> None:
    found = await kube.get_as(account(namespace), SECRETS, (namespace, secret))
    assert base64.b64decode(found["data"]["password"]) == b"hunter2"


async def test_a_user_is_in_no_group_of_accounts(kube: Kube, namespace: str, secret: str) -> None:
    with pytest.raises(Forbidden):
        await kube.get_as("somebody", SECRETS, (namespace, secret))


async def test_metadata_alone_leaves_the_server_without_the_values(kube: Kube, namespace: str, secret: str) -> None:
    found = await kube.get_as(account(namespace), SECRETS, (namespace, secret), metadata=True)
    assert found["kind"] == "PartialObjectMetadata"
    assert "data" not in found
    assert found["metadata"]["resourceVersion"]


async def test_missing_looks_as_forbidden_to_whoever_may_not_know(kube: Kube, namespace: str, secret: str) -> None:
    with pytest.raises(NotFound):
        await kube.get_as(account(namespace), SECRETS, (namespace, "gone"))
    texts = []
    for name in (secret, "nothing-of-the-kind"):
        with pytest.raises(Forbidden) as refused:
            await kube.get_as("somebody", SECRETS, (namespace, name))
        texts.append(refused.value.message.replace(name, "NAME"))
    assert texts[0] == texts[1]

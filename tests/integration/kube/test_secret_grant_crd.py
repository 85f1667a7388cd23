"""The real API server accepts valid SecretGrants unchanged, and names what is wrong in an invalid one.

A SecretGrant that is not refused here counts. Objects are sent by server-side dry run.
"""

from __future__ import annotations

import http
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.definitions import ensure_served
from support.examples.folders import manifest
from trellis.crds.secret_grants import SecretGrant
from trellis.kube.resources import DEFINITIONS, SECRET_GRANTS
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
ISSUER = "A" + "B2" * 27 + "C"
SHOP = {"namespace": "shop"}
SMALLEST: dict[str, Any] = {"from": [SHOP], "serviceAccounts": ["wasmcloud-secrets"]}

GOOD: dict[str, dict[str, Any]] = {
    "the smallest": SMALLEST,
    "any account, for one lattice": {"from": [SHOP | {"lattice": "Default_1"}], "serviceAccounts": ["*"]},
    "users alone": {"from": [SHOP], "users": ["jane@example.com", "system:serviceaccount:other:reader"]},
    "nobody at all": {"from": [SHOP], "serviceAccounts": []},
    "everything": {
        "from": [SHOP, {"namespace": "till", "lattice": "eu.west"}],
        "serviceAccounts": ["wasmcloud-secrets", "reader.v2"],
        "users": ["payments-reader"],
        "entityIssuers": [ISSUER],
    },
    "as many as there may be": {
        "from": [{"namespace": f"n{number}"} for number in range(64)],
        "serviceAccounts": [f"a{number}" for number in range(64)],
    },
}

BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "spec: Required"),
    "nobody asks": ({"serviceAccounts": ["a"]}, "spec.from: Required"),
    "an empty list asks": (SMALLEST | {"from": []}, "spec.from"),
    "a lattice of no namespace": (SMALLEST | {"from": [{"lattice": "l"}]}, "spec.from[0].namespace: Required"),
    "any namespace": (SMALLEST | {"from": [{"namespace": "*"}]}, "spec.from[0].namespace"),
    "a lattice that is none": (SMALLEST | {"from": [SHOP | {"lattice": ""}]}, "spec.from[0].lattice"),
    "as nobody is said": ({"from": [SHOP]}, "needs serviceAccounts or users"),
    "a misspelt field leaves nothing said": ({"from": [SHOP], "accounts": ["a"]}, "needs serviceAccounts or users"),
    "an account with its namespace": (SMALLEST | {"serviceAccounts": ["shop:reader"]}, "spec.serviceAccounts[0]"),
    "an account that is none": (SMALLEST | {"serviceAccounts": ["Reader"]}, "spec.serviceAccounts[0]"),
    "a pattern of accounts": (SMALLEST | {"serviceAccounts": ["read*"]}, "spec.serviceAccounts[0]"),
    "any beside a name": (SMALLEST | {"serviceAccounts": ["*", "a"]}, "spec.serviceAccounts: "),
    "an account twice": (SMALLEST | {"serviceAccounts": ["a", "a"]}, "Duplicate value"),
    "an empty user": (SMALLEST | {"users": [""]}, "spec.users[0]"),
    "a user of two lines": (SMALLEST | {"users": ["jane\nImpersonate-Group: system:masters"]}, "spec.users[0]"),
    "a user of Kubernetes itself": (SMALLEST | {"users": ["system:admin"]}, "spec.users[0]"),
    "an empty list of issuers": (SMALLEST | {"entityIssuers": []}, "spec.entityIssuers"),
    "a component as an issuer": (SMALLEST | {"entityIssuers": ["M" + ISSUER[1:]]}, "spec.entityIssuers[0]"),
    "an issuer cut short": (SMALLEST | {"entityIssuers": [ISSUER[:-1]]}, "spec.entityIssuers[0]"),
    "more than there may be": (
        SMALLEST | {"serviceAccounts": [f"a{number}" for number in range(65)]},
        "spec.serviceAccounts: Too many",
    ),
}


@pytest.fixture(scope="module")
def api(cluster_api: Api) -> Api:
    ensure_served(cluster_api, SECRET_GRANTS)
    return cluster_api


def send(api: Api, spec: Any) -> tuple[int, Any]:
    manifest: dict[str, Any] = {
        "apiVersion": SECRET_GRANTS.api_version,
        "kind": SECRET_GRANTS.kind,
        "metadata": {"name": "shop"},
    }
    if spec is not None:
        manifest["spec"] = spec
    return api.call("POST", SECRET_GRANTS.path("default") + "?dryRun=All", manifest)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_grant_is_kept_as_it_is_and_read_by_the_model(api: Api, name: str) -> None:
    status, answer = send(api, GOOD[name])
    assert status == http.HTTPStatus.CREATED, answer
    assert answer["spec"] == GOOD[name]
    read = SecretGrant.model_validate(answer).spec
    assert read.model_dump(by_alias=True, exclude_unset=True) == GOOD[name]


def shown() -> list[dict[str, Any]]:
    """Return the grants of the documentation and of the example."""
    page = "\n".join(path.read_text() for path in sorted((ROOT / "docs/secrets").glob("*.md")))
    found = [yaml.safe_load(text) for text in re.findall(r"```yaml grant\n(.*?)```", page, re.DOTALL)]
    return [*found, manifest("secret", SECRET_GRANTS.kind)]


@pytest.mark.parametrize("grant", shown(), ids=lambda item: item["metadata"]["name"])
def test_the_grants_of_the_documentation_can_be_applied(api: Api, grant: dict[str, Any]) -> None:
    status, answer = send(api, grant["spec"])
    assert status == http.HTTPStatus.CREATED, answer
    assert answer["spec"] == grant["spec"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_grant_is_refused_and_the_mistake_is_named(api: Api, name: str) -> None:
    spec, expected_text = BAD[name]
    status, answer = send(api, spec)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY, answer
    assert expected_text in answer["message"]


def test_the_status_of_a_grant_is_a_subresource(api: Api) -> None:
    status, definition = api.call("GET", DEFINITIONS.path(name="secretgrants.trellis.dev"))
    assert status == http.HTTPStatus.OK
    assert definition["spec"]["versions"][0]["subresources"] == {"status": {}}

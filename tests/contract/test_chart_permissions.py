"""The chart gives what deploy/rbac and the commands give: the same objects, and no impersonation of all users."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from controller_host.settings import Settings
from support.chart.rendered import CHART, ChartRefusedError, Manifest, helm, of, only, plain, rendered
from support.cluster.grants import manifests
from trellis.services import SERVICES, Service
from trellis_cli.common.output import Format
from trellis_cli.controllers.roles import roles as controllers_roles
from trellis_cli.secrets.roles import roles as secrets_roles

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
LONG = "a" * 253
EVERYTHING = {
    "secrets": {
        "accounts": [
            {"namespace": "shop", "serviceAccount": "reader", "secrets": ["db", "api"]},
            {"namespace": "shop", "user": "jane@example.com", "secrets": ["db"]},
        ]
    },
    "controllers": {"accounts": [{"namespace": "shop", "serviceAccount": "ttl", "watch": ["jobs.batch"]}]},
}
PERMISSIONS = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def permissions(found: list[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    return of([plain(item) for item in found if item["kind"] in PERMISSIONS])


def printed(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str, str], Manifest]:
    return of(list(yaml.safe_load_all(capsys.readouterr().out)))


def test_helm_lint_reports_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda item: item.name)
def test_a_service_gets_what_deploy_rbac_gives(service: Service) -> None:
    assert permissions(rendered(services=only(service.chart_key))) == of(manifests(f"{service.name}.yaml"))


def test_without_reports_about_workloads_provisioner_may_not_watch_pods() -> None:
    services = only("provisioner")
    services["provisioner"]["watchWorkloads"] = False
    found = rendered(services=services)
    wanted = [item for item in manifests("provisioner.yaml") if not item["metadata"]["name"].endswith("-workloads")]
    assert permissions(found) == of(wanted)
    [deployment] = [item for item in found if item["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "TRELLIS_WATCH_WORKLOADS", "value": "false"} in container["env"]


def test_a_confined_host_manager_gets_roles_where_it_watches_and_nothing_everywhere() -> None:
    services = only("hostManager")
    services["hostManager"]["watchNamespaces"] = ["shop", "lab"]
    wanted = manifests("host-manager-confined.yaml")
    for namespace in ("shop", "lab"):
        wanted += manifests("host-manager-watched.yaml", namespace)
    assert permissions(rendered(services=services)) == of(wanted)


def test_in_another_namespace_nothing_is_left_of_the_default_one() -> None:
    assert "trellis-system" not in yaml.safe_dump_all(rendered("wasm", **EVERYTHING))


@pytest.mark.parametrize(
    ("accounts", "users", "secrets"),
    [
        pytest.param(["reader"], [], ["db", "api", "db"], id="an account and two Secrets"),
        pytest.param(["reader"], [], [], id="an account that may read nothing"),
        pytest.param(["a.b-c", LONG, "0"], [], ["db"], id="names that are dotted, too long, and a number"),
        pytest.param([], ["jane@example.com"], ["db"], id="a user"),
        pytest.param([], ["@", "UPPER-lower", "x" * 200], ["db"], id="users whose names are hashed"),
    ],
)
def test_secrets_are_granted_by_the_objects_that_the_command_prints(
    accounts: list[str], users: list[str], secrets: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    secrets_roles("shop", accounts, users, secrets, Format.YAML)
    entries = [{"serviceAccount": account} for account in accounts] + [{"user": user} for user in users]
    values = {"accounts": [{"namespace": "shop", "secrets": secrets} | entry for entry in entries]}
    assert added(secrets=values) == printed(capsys)


@pytest.mark.parametrize(
    ("accounts", "watch"),
    [
        (["ttl"], ["jobs.batch", "configmaps", "leases.coordination.k8s.io", "jobs.batch"]),
        (["ttl"], []),
        (["a.b-c", LONG], ["b.a.b", "z.a"]),
    ],
)
def test_controllers_are_granted_by_the_objects_that_the_command_prints(
    accounts: list[str], watch: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    controllers_roles("shop", accounts, watch, Format.YAML)
    values = {"accounts": [{"namespace": "shop", "serviceAccount": account, "watch": watch} for account in accounts]}
    assert added(controllers=values) == printed(capsys)


def test_a_user_of_two_namespaces_is_impersonated_by_one_cluster_role() -> None:
    accounts = [{"namespace": name, "user": "jane@example.com", "secrets": ["db"]} for name in ("shop", "lab")]
    kinds = [kind for kind, _, _ in added(secrets={"accounts": accounts})]
    assert sorted(kinds) == ["ClusterRole", "ClusterRoleBinding", "Role", "Role", "RoleBinding", "RoleBinding"]


def test_a_service_that_is_not_installed_gets_no_permissions() -> None:
    found = permissions(rendered(services=only("hostManager"), **EVERYTHING)).values()
    assert {item["metadata"]["labels"]["app.kubernetes.io/component"] for item in found} == {"host-manager"}


def test_by_default_no_user_may_be_impersonated() -> None:
    assert impersonations(rendered()) == []


def test_service_accounts_are_named_in_their_namespace_and_users_by_their_full_name() -> None:
    found = impersonations(rendered(**EVERYTHING))
    assert sorted((kind, rule["resources"], rule["resourceNames"]) for kind, rule in found) == [
        ("ClusterRole", ["users"], ["jane@example.com"]),
        ("Role", ["serviceaccounts"], ["reader"]),
        ("Role", ["serviceaccounts"], ["ttl"]),
    ]


def test_the_values_of_the_page_are_values() -> None:
    block = re.search(
        r"```yaml values\n(.*?)```", (CHART.parents[2] / "docs/installation/accounts.md").read_text(), re.DOTALL
    )
    assert block is not None
    found = permissions(rendered(**yaml.safe_load(block[1])))
    assert ("Role", "shop", "trellis-watcher-ttl") in found
    watched = found["ClusterRole", "", "trellis-controller-host-watches"]["rules"]
    assert [rule["resources"] for rule in watched] == [["configmaps"], ["jobs"], ["ingresses"]]


def test_no_rule_has_a_wildcard_and_no_account_may_bind_or_escalate() -> None:
    for item in rendered(**EVERYTHING):
        for rule in item.get("rules", ()):
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert not {"bind", "escalate"} & set(rule["verbs"])


def test_the_default_watches_of_the_chart_are_those_of_the_service() -> None:
    kinds = tuple(f"{item['apiVersion']}/{item['kind']}" for item in VALUES["controllers"]["watch"])
    assert kinds == Settings.model_fields["controller_resources"].default


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        ({"secrets": {"accounts": [{"namespace": "shop"}]}}, "shop needs either serviceAccount or user"),
        (
            {"secrets": {"accounts": [{"namespace": "shop", "serviceAccount": "a", "user": "b"}]}},
            "shop needs either serviceAccount or user",
        ),
        (
            {"secrets": {"accounts": [{"namespace": "shop", "serviceAccount": "a"}] * 2}},
            "secrets.accounts: a of namespace shop has",
        ),
        (
            {"secrets": {"accounts": [{"namespace": "shop", "user": "system:masters"}]}},
            "secrets.accounts: user system:masters",
        ),
        ({"secrets": {"accounts": [{"namespace": "*", "serviceAccount": "a"}]}}, "secrets.accounts.0.namespace"),
        (
            {"secrets": {"accounts": [{"namespace": "shop", "serviceAccount": "*"}]}},
            "secrets.accounts.0.serviceAccount",
        ),
        ({"secrets": {"accounts": [{"namespace": "shop", "user": "a,b"}]}}, "secrets.accounts.0.user"),
        (
            {"secrets": {"accounts": [{"namespace": "s", "user": "a", "secrets": ["*"]}]}},
            "secrets.accounts.0.secrets.0",
        ),
        ({"secrets": {"accounts": [{"serviceAccount": "a"}]}}, "namespace is required"),
        ({"secrets": {"account": []}}, "Additional property account is not allowed"),
        ({"controllers": {"watch": [{"apiVersion": "v1", "kind": "Secret"}]}}, "Secrets are never watched"),
        ({"controllers": {"watch": [{"apiVersion": "v1", "kind": "secret"}]}}, "Secrets are never watched"),
        (
            {"controllers": {"watch": [{"apiVersion": "v1", "kind": "X", "resource": "secrets"}]}},
            "Secrets are never watched",
        ),
        (
            {"controllers": {"watch": [{"apiVersion": "v1", "kind": "X", "resource": "*"}]}},
            "controllers.watch.0.resource",
        ),
        (
            {"controllers": {"accounts": [{"namespace": "shop", "serviceAccount": "a", "watch": ["secrets"]}]}},
            "shop/a: Secrets are not watched",
        ),
        (
            {"controllers": {"accounts": [{"namespace": "shop", "serviceAccount": "a", "watch": ["*"]}]}},
            "controllers.accounts.0.watch.0",
        ),
        (
            {"controllers": {"accounts": [{"namespace": "shop", "serviceAccount": "a"}] * 2}},
            "controllers.accounts: shop/a has",
        ),
        ({"services": {"secretBackend": {"enabled": True}}}, "Additional property secretBackend is not allowed"),
        ({"services": {"secretsBackend": {"enabled": "yes"}}}, "services.secretsBackend.enabled"),
    ],
)
def test_values_that_cannot_be_are_refused_by_their_name(values: dict[str, Any], expected_text: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        rendered(**values)


def added(**values: Any) -> dict[tuple[str, str, str], Manifest]:
    """Return the permissions that these values add to those of the chart."""
    before, after = permissions(rendered()), permissions(rendered(**values))
    assert {key: after[key] for key in before} == before
    return {key: item for key, item in after.items() if key not in before}


def impersonations(found: list[Manifest]) -> list[tuple[str, Manifest]]:
    """Return the rules that permit impersonation, with the kind of their role."""
    rules = [(item["kind"], rule) for item in found for rule in item.get("rules", ())]
    return [(kind, rule) for kind, rule in rules if "impersonate" in rule["verbs"]]

"""``trellis controllers roles``: what is printed is what was asked for, and a wrong name is refused by its option."""

from __future__ import annotations

import json

import pytest
import yaml

from trellis_cli.common.output import Format
from trellis_cli.controllers.roles import roles

RolesOutput = pytest.CaptureFixture[str]


def test_an_account_that_sees_two_resources_needs_two_roles(capsys: RolesOutput) -> None:
    roles("payments", ["ttl"], ["jobs.batch", "configmaps", "jobs.batch"], Format.YAML)
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [(item["kind"], item["metadata"]["name"]) for item in found] == [
        ("Role", "trellis-controller-ttl"),
        ("RoleBinding", "trellis-controller-ttl"),
        ("Role", "trellis-watcher-ttl"),
        ("RoleBinding", "trellis-watcher-ttl"),
    ]
    assert {item["metadata"]["namespace"] for item in found} == {"payments"}
    assert [(rule["apiGroups"], rule["resources"]) for rule in found[2]["rules"]] == [
        ([""], ["configmaps"]),
        (["batch"], ["jobs"]),
    ]
    assert found[3]["subjects"] == [{"kind": "ServiceAccount", "name": "ttl", "namespace": "payments"}]


def test_without_resources_no_right_to_see_is_given(capsys: RolesOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_NAMESPACE", "wasm")
    roles("payments", ["ttl", "quota", "ttl"], None, Format.JSON)
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["metadata"]["name"] for item in items if item["kind"] == "Role"] == [
        "trellis-controller-ttl",
        "trellis-controller-quota",
    ]
    assert items[0]["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["ttl"], "verbs": ["impersonate"]}
    ]
    assert items[1]["subjects"] == [{"kind": "ServiceAccount", "name": "trellis-controller-host", "namespace": "wasm"}]


@pytest.mark.parametrize(
    ("namespace", "accounts", "watched", "words"),
    [
        ("Payments", ["a"], [], "--namespace"),
        ("payments", [], ["jobs.batch"], "--service-account"),
        ("payments", ["*"], [], "--service-account"),
        ("payments", ["other:a"], [], "--service-account"),
        ("payments", ["a"], ["batch/v1/Job"], "--watch"),
        ("payments", ["a"], ["*"], "--watch"),
        ("payments", ["a"], ["secrets"], "--watch"),
    ],
)
def test_a_wrong_name_is_refused_by_its_option(
    capsys: RolesOutput, namespace: str, accounts: list[str], watched: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        roles(namespace, accounts, watched, Format.YAML)
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert words in printed.err

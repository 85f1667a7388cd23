"""``trellis secrets roles``: what is printed is what was asked for, and a wrong name is refused by its option."""

from __future__ import annotations

import json

import pytest
import yaml

from trellis_cli.common.output import Format
from trellis_cli.secrets.roles import roles

RolesOutput = pytest.CaptureFixture[str]


def test_an_account_that_reads_two_secrets_needs_two_roles(capsys: RolesOutput) -> None:
    roles("payments", ["reader"], None, ["db", "api"], Format.YAML)
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [(item["kind"], item["metadata"]["name"]) for item in found] == [
        ("Role", "trellis-impersonate-reader"),
        ("RoleBinding", "trellis-impersonate-reader"),
        ("Role", "trellis-reader-reader"),
        ("RoleBinding", "trellis-reader-reader"),
    ]
    assert {item["metadata"]["namespace"] for item in found} == {"payments"}
    assert found[2]["rules"][0]["resourceNames"] == ["db", "api"]


def test_without_secrets_no_right_to_read_is_given(capsys: RolesOutput) -> None:
    roles("payments", ["reader", "writer", "reader"], None, None, Format.JSON)
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "List"
    assert [item["metadata"]["name"] for item in found["items"] if item["kind"] == "Role"] == [
        "trellis-impersonate-reader",
        "trellis-impersonate-writer",
    ]


def test_the_namespace_of_trellis_is_its_setting(capsys: RolesOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_NAMESPACE", "wasm")
    roles("payments", None, ["jane"], None, Format.JSON)
    _, binding = json.loads(capsys.readouterr().out)["items"]
    assert binding["kind"] == "ClusterRoleBinding"
    assert binding["subjects"][0]["namespace"] == "wasm"


@pytest.mark.parametrize(
    ("namespace", "accounts", "users", "secrets", "words"),
    [
        ("Payments", ["a"], [], [], "--namespace"),
        ("a.b", ["a"], [], [], "--namespace"),
        ("payments", [], [], ["db"], "--service-account"),
        ("payments", ["*"], [], [], "--service-account"),
        ("payments", ["other:a"], [], [], "--service-account"),
        ("payments", ["a"], ["system:masters"], [], "--user"),
        ("payments", ["a"], [" "], [], "--user"),
        ("payments", ["a"], ["x\ny"], [], "--user"),
        ("payments", ["a"], [], ["*"], "--secret"),
        ("payments", ["a"], [], [""], "--secret"),
    ],
)
def test_a_wrong_name_is_refused_by_its_option(
    capsys: RolesOutput, namespace: str, accounts: list[str], users: list[str], secrets: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        roles(namespace, accounts, users, secrets, Format.YAML)
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert words in printed.err

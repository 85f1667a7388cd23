"""The content of a policy, or its error."""

import json
from typing import Any

import pytest

from secrets_backend.domain.policy import Policy, read_policy
from secrets_backend.domain.refusals import ErrorName, Refusal
from support.secrets.opened_requests import accepted, answer, message, refusal
from support.secrets.secret_requests import asking_with

TYPE = "properties.secret.wasmcloud.dev/v1alpha1"


def written(properties: Any, **others: Any) -> str:
    return json.dumps({"type": TYPE, "properties": properties} | others)


TAKEN: dict[str, tuple[str, Policy]] = {
    "both": (written({"namespace": "team-a", "impersonate": "reader"}), Policy("team-a", "reader")),
    "a namespace alone": (written({"namespace": "team-a"}), Policy("team-a", None)),
    "an account alone": (written({"impersonate": "reader"}), Policy("default", "reader")),
    "no property": (written({}), Policy("default", None)),
    "properties that are null": (written(None), Policy("default", None)),
    "null in each": (written({"namespace": None, "impersonate": None}), Policy("default", None)),
    "an empty account": (written({"namespace": "a", "impersonate": ""}), Policy("a", None)),
    "properties nobody knows": (written({"namespace": "a", "backend": 5, "x": [{}]}), Policy("a", None)),
    "members nobody knows": (written({"namespace": "a"}, namespace="b", impersonate=5), Policy("a", None)),
    "no type": ('{"properties": {"namespace": "a"}}', Policy("a", None)),
    "a type that is null": (written({"namespace": "a"}, type=None), Policy("a", None)),
    "another type": (written({"namespace": "a"}, type="anything"), Policy("a", None)),
    "blanks around": (f"\n {written({'namespace': 'a'})} \t", Policy("a", None)),
    "a property twice": ('{"properties": {"namespace": "b", "namespace": "a"}}', Policy("a", None)),
    "properties twice": ('{"properties": 5, "properties": {"namespace": "a"}}', Policy("a", None)),
    "another case": (written({"Namespace": "a", "IMPERSONATE": "b"}), Policy("default", None)),
    "a namespace of 63 characters": (written({"namespace": "a" * 63}), Policy("a" * 63, None)),
    "a namespace of digits": (written({"namespace": "1"}), Policy("1", None)),
    "a user name as kubectl has it": (
        written({"impersonate": "system:serviceaccount:a:b"}),
        Policy("default", "system:serviceaccount:a:b"),
    ),
    "a user name of OpenID Connect": (
        written({"impersonate": "https://login.example.com#jane@example.com"}),
        Policy("default", "https://login.example.com#jane@example.com"),
    ),
    "a user name with a blank inside": (written({"impersonate": "Jane Doe"}), Policy("default", "Jane Doe")),
    "a user name outside of ASCII": (written({"impersonate": "jürgen"}), Policy("default", "jürgen")),
    "an account of 1,024 characters": (written({"impersonate": "a" * 1024}), Policy("default", "a" * 1024)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_policy_asks_for_a_namespace_and_an_account(case: str) -> None:
    text, expected = TAKEN[case]
    assert read_policy(text) == expected
    assert accepted(message(asking_with({"context.application.policy": text}))).policy == expected


REFUSED: dict[str, str] = {
    "empty": "",
    "blanks": "   ",
    "null": "null",
    "a number": "5",
    "true": "true",
    "a text": '"policy"',
    "a list": "[]",
    "an empty object": "{}",
    "a type alone": json.dumps({"type": TYPE}),
    "flat": json.dumps({"type": TYPE, "namespace": "team-a", "impersonate": "reader"}),
    "half": written({"namespace": "a"})[:-1],
    "two": written({"namespace": "a"}) * 2,
    "YAML": "properties:\n  namespace: team-a",
    "a policy within a text": json.dumps(written({"namespace": "a"})),
    "NaN": '{"properties": {}, "x": NaN}',
    "half of a surrogate pair": '{"properties": {"namespace": "\\ud800"}}',
    "nested beyond measure": '{"properties": ' + "[" * 5000 + "]" * 5000 + "}",
    **{f"a type that is {kind}": written({}, type=value) for kind, value in (("5", 5), ("a list", []), ("true", True))},
    **{
        f"properties that are {kind}": written(value)
        for kind, value in (("a text", "namespace"), ("a list", []), ("a number", 5), ("true", True), ("false", False))
    },
    **{
        f"{name} that is {kind}": written({name: value})
        for name in ("namespace", "impersonate")
        for kind, value in (
            ("a number", 5),
            ("zero", 0),
            ("true", True),
            ("false", False),
            ("a list", ["a"]),
            ("an object", {}),
        )
    },
    **{
        f"a namespace that is {kind}": written({"namespace": value})
        for kind, value in {
            "empty": "",
            "the directory above": "..",
            "a path": "a/secrets/b",
            "a path in escapes": "a%2fsecrets",
            "upper case": "Team-A",
            "with a dot": "a.b",
            "with a blank": " a",
            "with a line break": "a\n",
            "with a dash in front": "-a",
            "with a dash at the end": "a-",
            "64 characters": "a" * 64,
            "a hundred thousand characters": "a" * 100_000,
            "outside of ASCII": "tëam",
            "all of them": "*",
            "a zero byte": "a\0",
        }.items()
    },
    **{
        f"an account {kind}": written({"impersonate": value})
        for kind, value in {
            "with a blank in front": " admin",
            "with a blank at the end": "admin ",
            "with a tab": "ad\tmin",
            "with line breaks": "reader\r\nImpersonate-Group: system:masters",
            "with a line break": "reader\n",
            "with a zero byte": "reader\0",
            "with a line separator": "a\u2028b",
            "with a no-break blank": "\u00a0admin",
            "with a control character of C1": "a\u0085b",
            "with an invisible letter": "a\u200bb",
            "of one blank": " ",
            "of 1,025 characters": "a" * 1025,
        }.items()
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_policy_is_a_policy_error_with_a_message(case: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_policy(REFUSED[case])
    assert caught.value.error is ErrorName.POLICY
    refused = refusal(message(asking_with({"context.application.policy": REFUSED[case]})))
    error_text = answer(ErrorName.POLICY, refused.body())
    assert "policy" in error_text
    assert error_text.isprintable()
    assert len(error_text) < 300

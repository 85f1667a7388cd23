"""The content of the box: JSON, its members and their types, and the names in it."""

import json
from typing import Any

import pytest

from secrets_backend.domain.reading import quoted
from secrets_backend.domain.refusals import ErrorName
from support.secrets.opened_requests import accepted, answer, message, refusal
from support.secrets.secret_requests import GOOD, Absent, asking, asking_with

TEXT = asking().decode()
NOT_AN_OBJECT: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b"  \n",
    "null": b"null",
    "true": b"true",
    "a number": b"12",
    "a text": b'"text"',
    "a list": b"[]",
    "a list with a request": b"[" + asking() + b"]",
    "a request within a text": json.dumps(TEXT).encode(),
    "half a request": asking()[:-1],
    "a bracket too many": asking() + b"}",
    "two requests": asking() * 2,
    "a comma at the end": asking()[:-1] + b",}",
    "a comment": asking() + b" // done",
    "quotes of another kind": asking().replace(b'"', b"'"),
    "names without quotes": b"{key: 1}",
    "NaN": asking(version=None).replace(b'"version": null', b'"version": NaN'),
    "Infinity": asking().replace(b'"version": null', b'"other": Infinity'),
    "a number beyond all": asking().replace(b'"version": null', b'"other": 1e999'),
    "a number with a leading zero": asking().replace(b'"version": null', b'"other": 01'),
    "a byte order mark": b"\xef\xbb\xbf" + asking(),
    "UTF-16": TEXT.encode("utf-16-le"),
    "bytes that are no UTF-8": asking().replace(b"app-secrets", b"app-\xff\xfe"),
    "an overlong form": asking().replace(b"app-secrets", b"app-\xc0\xaf"),
    "half of a surrogate pair": asking().replace(b"app-secrets", b"app-\\ud800"),
    "the other half": asking().replace(b"app-secrets", b"app-\\udc00"),
    "a surrogate pair in bytes": asking().replace(b"app-secrets", b"\xed\xa0\xbd\xed\xb8\x80"),
    "a control character in a text": asking().replace(b"app-secrets", b"app\nsecrets"),
    "an unknown escape": asking().replace(b"app-secrets", b"app\\xsecrets"),
    "a zero byte after it": asking() + b"\0",
    "nested beyond measure": b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"," + asking()[1:],
    "objects nested beyond measure": b'{"other":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"," + asking()[1:],
}


@pytest.mark.parametrize("case", NOT_AN_OBJECT)
def test_a_payload_that_is_no_json_object_is_invalid(case: str) -> None:
    refused = refusal(message(NOT_AN_OBJECT[case]), NOT_AN_OBJECT[case])
    assert refused.error is ErrorName.INVALID_PAYLOAD
    assert refused.body() == b'{"error":"InvalidPayload"}'


UNUSUAL: dict[str, bytes] = {
    "blanks around": b" \r\n\t" + asking() + b"\n",
    "members in another order": json.dumps(dict(reversed(GOOD.items()))).encode(),
    "letters as escapes": asking().replace(b'"key"', b'"\\u006bey"').replace(b"app-secrets", b"\\u0061pp-secrets"),
    "a name twice, the last value counts": b'{"key":"first",' + asking()[1:],
    "an ill-typed value that another replaces": b'{"key":5,"context":7,' + asking()[1:],
    "members nobody knows": asking(other={"a": [1, -2.5, None, True]}, Key="other", KEY="other"),
    "a number beyond 64 bits nobody reads": asking(other=2**70),
    "nested, within measure": b'{"other":' + b"[" * 900 + b"]" * 900 + b"," + asking()[1:],
    "a very long member nobody reads": asking(other="x" * 500_000),
    "a version": asking(version="4711"),
    "an empty version": asking(version=""),
    "members in other parts": asking_with({"context.other": 1, "context.application.other": {}}),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_an_unusual_but_valid_payload_is_read(case: str) -> None:
    request = accepted(message(UNUSUAL[case]))
    assert (request.secret, request.field, request.application) == ("app-secrets", "password", "shop")


ILL_TYPED: dict[str, Any] = {
    "a number": 5,
    "a fraction": 0.5,
    "true": True,
    "false": False,
    "a list": [],
    "an object": {},
}
TEXTS = [
    "key",
    "field",
    "version",
    "context.entity_jwt",
    "context.host_jwt",
    "context.application.name",
    "context.application.policy",
]
OBJECTS = ["context", "context.application"]


@pytest.mark.parametrize("kind", ILL_TYPED)
@pytest.mark.parametrize("member", TEXTS)
def test_a_member_that_is_no_text_is_an_invalid_payload(member: str, kind: str) -> None:
    text = asking_with({member: ILL_TYPED[kind]})
    assert refusal(message(text), text).error is ErrorName.INVALID_PAYLOAD


@pytest.mark.parametrize("kind", ["a number", "a fraction", "true", "false", "a list"])
@pytest.mark.parametrize("member", OBJECTS)
def test_a_member_that_is_no_object_is_an_invalid_payload(member: str, kind: str) -> None:
    text = asking_with({member: ILL_TYPED[kind]})
    assert refusal(message(text)).error is ErrorName.INVALID_PAYLOAD


@pytest.mark.parametrize("member", OBJECTS)
def test_a_text_in_the_place_of_an_object_is_an_invalid_payload(member: str) -> None:
    assert refusal(message(asking_with({member: json.dumps(GOOD)}))).error is ErrorName.INVALID_PAYLOAD


MISSING: dict[str, tuple[ErrorName, str]] = {
    "key": (ErrorName.OTHER, "missing secret name"),
    "field": (ErrorName.OTHER, "missing secret key/field"),
    "context": (ErrorName.INVALID_ENTITY_JWT, "it is not a JWT: a JWT has three parts separated by dots"),
    "context.entity_jwt": (ErrorName.INVALID_ENTITY_JWT, "it is not a JWT: a JWT has three parts separated by dots"),
    "context.host_jwt": (ErrorName.INVALID_HOST_JWT, "it is not a JWT: a JWT has three parts separated by dots"),
    "context.application": (ErrorName.POLICY, "there is no policy"),
    "context.application.policy": (ErrorName.POLICY, "there is no policy"),
}
EMPTY = {"left out": Absent, "null": None, "empty": ""}


@pytest.mark.parametrize("how", EMPTY)
@pytest.mark.parametrize("member", MISSING)
def test_a_missing_field_is_reported_by_its_check(member: str, how: str) -> None:
    value = {} if how == "empty" and member in OBJECTS else EMPTY[how]
    refused = refusal(message(asking_with({member: value})))
    error, expected_text = MISSING[member]
    assert refused.error is error
    assert answer(error, refused.body()) == expected_text


@pytest.mark.parametrize("how", EMPTY)
def test_neither_a_version_nor_the_name_of_an_application_is_needed(how: str) -> None:
    text = asking_with({"version": EMPTY[how], "context.application.name": EMPTY[how]})
    assert accepted(message(text)).application is None


NAMES: dict[str, str] = {
    "one letter": "a",
    "digits": "1",
    "dots": "tls.example.com",
    "253 characters": "a" * 253,
    "labels of more than 63 characters": "a" * 100 + "." + "b" * 100,
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_a_secret_can_have_is_taken(case: str) -> None:
    assert accepted(message(asking(key=NAMES[case]))).secret == NAMES[case]


NO_NAMES: dict[str, str] = {
    "the directory above": "..",
    "this directory": ".",
    "a path upwards": "../../../../api/v1/nodes",
    "a path upwards in escapes": "%2e%2e%2f%2e%2e",
    "an absolute path": "/api/v1/secrets",
    "two parts": "team-a/app-secrets",
    "a backslash": "a\\b",
    "a query": "a?watch=true",
    "a fragment": "a#b",
    "a zero byte": "a\0b",
    "a line break at the end": "app-secrets\n",
    "line breaks, as for a header": "a\r\nImpersonate-User: admin",
    "a blank": "a b",
    "blanks around": " app-secrets ",
    "upper case": "App-Secrets",
    "an underline": "app_secrets",
    "a dash in front": "-a",
    "a dash at the end": "a-",
    "a dot in front": ".a",
    "two dots": "a..b",
    "a dash before a dot": "a-.b",
    "254 characters": "a" * 254,
    "a hundred thousand characters": "a." * 50_000,
    "many dashes": "a" + "-" * 251,
    "a letter outside of ASCII": "é",
    "a digit outside of ASCII": "١",
    "a zero-width letter": "a\u200bb",
    "from right to left": "a\u202eb",
    "a smile": "\U0001f600",
    "a star": "*",
}


@pytest.mark.parametrize("case", NO_NAMES)
def test_a_name_that_no_secret_can_have_never_gets_into_a_path(case: str) -> None:
    """The peer's words are those of the API server, UpstreamError; here it is not asked."""
    refused = refusal(message(asking(key=NO_NAMES[case])))
    error_text = answer(ErrorName.UPSTREAM, refused.body())
    assert quoted(NO_NAMES[case]) in error_text
    assert error_text.isprintable()
    assert len(error_text) < 500


FIELDS: dict[str, str] = {
    "one letter": "a",
    "dots and dashes": "tls.crt-1_a",
    "dots alone": "..",
    "upper case": "PASSWORD",
    "253 characters": "f" * 253,
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_that_a_secret_can_have_is_taken(case: str) -> None:
    assert accepted(message(asking(field=FIELDS[case]))).field == FIELDS[case]


NO_FIELDS: dict[str, str] = {
    "a path": "../../etc/passwd",
    "a zero byte": "a\0b",
    "line breaks": "a\r\nb",
    "letters outside of ASCII": "pässword✓",
    "blanks": "  ",
    "a line break at the end": "password\n",
    "254 characters": "f" * 254,
    "a hundred thousand characters": "f" * 100_000,
}


@pytest.mark.parametrize("case", NO_FIELDS)
def test_a_field_that_no_secret_can_have_is_not_found_without_asking(case: str) -> None:
    """As it would be after asking; and no text of unbounded length gets into events."""
    refused = refusal(message(asking(field=NO_FIELDS[case])))
    assert refused.body() == b'{"error":"SecretNotFound"}'
    assert refused.message.isprintable()
    assert len(refused.message) < 500


APPLICATIONS: dict[str, tuple[str, str]] = {
    "a name": ("shop", "shop"),
    "letters outside of ASCII": ("lädchen ✓", "lädchen ✓"),
    "253 characters": ("a" * 253, "a" * 253),
    "a hundred thousand characters": ("a" * 100_000, "a" * 252 + "…"),
    "what moves a cursor": ("a\x1b[2Jb\n", "a\\u001b[2Jb\\u000a"),
}


@pytest.mark.parametrize("case", APPLICATIONS)
def test_the_name_of_an_application_is_kept_as_a_log_can_have_it(case: str) -> None:
    given, kept = APPLICATIONS[case]
    assert accepted(message(asking_with({"context.application.name": given}))).application == kept


def test_the_first_check_that_fails_answers() -> None:
    """Entity before host before policy before name before field, with any further errors."""
    wrong: dict[str, Any] = {
        "context.entity_jwt": "e",
        "context.host_jwt": "h",
        "context.application.policy": "p",
        "key": "",
        "field": "",
    }
    order = ["InvalidEntityJWT", "InvalidHostJWT", "PolicyError", "Other", "Other"]
    seen = []
    for step in range(len(wrong)):
        left = dict(list(wrong.items())[step:])
        seen.append(str(refusal(message(asking_with(left))).error))
    assert seen == order
    assert refusal(message(asking(key="", field=""))).message == "missing secret name"
    assert refusal(message(asking(key="..", field="/"))).error is ErrorName.UPSTREAM
    assert refusal(message(asking_with({**wrong, "version": 5}))).error is ErrorName.INVALID_PAYLOAD

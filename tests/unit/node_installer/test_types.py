"""Records that an installer reads, and records that are read of it, have the right types; else they are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node_installer.domain.errors import InstallError
from node_installer.domain.refusal import parse_refusal
from node_installer.domain.state import Journal, Phase, ShimState, State, parse_journal, parse_state
from support.secrets.secret_requests import changed
from trellis.installer_api.result import FailureReason, InstallResult, Outcome, ShimResult, parse_result
from trellis.installer_api.spec import SpecError, parse_spec

RESULT = InstallResult("install", Outcome.FAILED, FailureReason.LOCKED, "m", shims=(ShimResult("spin", verified=True),))
STATE = State({"spin": ShimState("spin", "/x", "ab", "d", ("o",), {"A": "1"})}, {}, ("/opt",), ("/old",))
JOURNAL = Journal("install", Phase.APPLYING, restart=True, backups={"/a": "b"})


@pytest.mark.parametrize(
    ("field", "value"),
    [("operation", 5), ("message", {}), ("preset", []), ("restarted", "yes"), ("seconds", 10**400), ("seconds", []),
     ("warnings", "abc"), ("warnings", [5]), ("shims", {"a": 1}), ("shims", [{"handler": {}}]), ("shims", [5]),
     ("shims", [{"handler": "a", "verified": 1}]), ("ended", [{"pid": "1"}])],
)  # fmt: skip
def test_a_result_with_an_invalid_type_is_ignored(field: str, value: Any) -> None:
    good = json.loads(RESULT.to_line())
    assert parse_result(json.dumps(good)) == RESULT
    assert parse_result(json.dumps(good | {field: value})) is None


def test_a_path_that_is_not_utf_8_is_reported() -> None:
    found = parse_result(InstallResult("install", Outcome.FAILED, message="/opt/\udcff: gone").to_line())
    assert found is not None
    assert found.message == "/opt/\\udcff: gone"


@pytest.mark.parametrize(
    ("place", "value"),
    [("retired", [[]]), ("directories", "abc"), ("shims.spin.owners", [{}]), ("shims.spin.path", 5),
     ("shims.spin.options", {"A": 1})],
)  # fmt: skip
def test_a_state_with_another_type_in_it_is_refused(place: str, value: Any) -> None:
    with pytest.raises(InstallError, match=r"^/f\b"):
        parse_state(json.dumps(changed(json.loads(STATE.to_bytes()), {place: value})).encode(), "/f")
    assert parse_state(STATE.to_bytes(), "/f") == STATE


@pytest.mark.parametrize(("field", "value"), [("restart", "{}"), ("cause", -1), ("backups", {"/a": {}})])
def test_a_journal_with_another_type_in_it_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InstallError, match=r"^/f\b"):
        parse_journal(json.dumps(json.loads(JOURNAL.to_bytes()) | {field: value}).encode(), "/f")
    assert parse_journal(JOURNAL.to_bytes(), "/f") == JOURNAL


def test_a_refusal_at_a_time_of_400_digits_holds_for_nothing() -> None:
    assert parse_refusal(b'{"key": "k", "at": 1' + b"0" * 400 + b', "message": "m"}', 0.0) is None


def test_a_name_that_no_handler_can_have_is_none_by_default() -> None:
    def wanted(**fields: Any) -> str:
        return json.dumps({"shims": [{"name": "a.b", **fields}]})

    assert parse_spec(wanted(handler="ab")).shims[0].handler == "ab"
    with pytest.raises(SpecError, match=r"^shims\[0\]\.handler: 'a\.b'"):
        parse_spec(wanted())
    assert parse_spec(wanted(), removal=True).shims[0].handler == ""


def test_an_architecture_that_is_a_list_is_none() -> None:
    with pytest.raises(SpecError, match=r"\bsources\[0\]\.arch: \[None\]"):
        parse_spec('{"shims": [{"name": "a", "sources": [{"arch": [null], "location": "https://x/y"}]}]}')


def test_an_option_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(SpecError, match="'A'"):
        parse_spec('{"shims": [{"name": "a", "containerdRuntimeOptions": {"A": "\\ud800"}}]}')

"""Digits that strangers wrote: `isdigit` is true of more than `int` takes, and `int` takes more than was meant."""

from __future__ import annotations

import pytest

from host_manager.domain.children import read_template_label
from trellis import names
from trellis.installer_api.parse_int import whole
from trellis.kube.errors import Call, Invalid, error_from
from trellis.provisioning.ledger import read_ledger
from trellis.provisioning.views import FailedAttempt

NO_NUMBERS = ["", "²", "٣", "1²", "-1", "+1", " 1", "1\n", "1_0", "1.0", "9" * 21, "9" * 5000]


@pytest.mark.parametrize("text", [*NO_NUMBERS, None])
def test_text_that_is_no_plain_number_is_none(text: str | None) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("18446744073709551615", 2**64 - 1)])
def test_a_plain_number_is_read(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_mark_with_it_is_none(text: str) -> None:
    assert FailedAttempt.decode(f"digest/{text}/1700000000") is None
    assert FailedAttempt.decode(f"digest/1/{text}") is None
    data = {"broken": f"digest/{text}/1700000000", "whole": "digest/1/1700000000"}
    assert read_ledger({"metadata": {}, "data": data}).entries.keys() == {"whole"}


@pytest.mark.parametrize("revision", ["²", "٣", "", "-1"])
def test_a_template_with_it_is_not_a_template_of_trellis(revision: str) -> None:
    label = {names.LABEL_TEMPLATE: f"{revision}.basis"}
    assert read_template_label({"metadata": {"labels": label}}) is None


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_proxy_that_reports_success_has_answered(text: str) -> None:
    body = b'{"reason": "Invalid", "details": {"causes": [[], {"field": "spec"}]}}'
    error = error_from(Call("GET", "Node", "nodes"), 422, body, {"Retry-After": text})
    assert isinstance(error, Invalid)
    assert error.retry_after is None

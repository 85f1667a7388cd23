"""The meaning of an option's text, where containerd or a reader of Trellis would refuse the whole configuration."""

from __future__ import annotations

import tomllib

import pytest

from node_installer.containerd import config
from node_installer.containerd.entries import Entry, option_value
from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

DEEP = "[" * 3000 + "]" * 3000
TEXTS = ["nan", "inf", "-inf", "1e400", "9" * 30, "-9223372036854775809", "9" * 5000, DEEP, "[9223372036854775808]"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_that_containerd_does_not_have_is_a_text(text: str) -> None:
    assert option_value(text) == text
    new = config.merged("version = 2\n", [Entry("spin", "/x", {"A": text})], path="f")
    assert tomllib.loads(new)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]["spin"]["options"] == {
        "A": text
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("1.5", 1.5), ("[1]", [1])],
)
def test_a_value_of_containerd_keeps_its_type(text: str, value: object) -> None:
    assert option_value(text) == value


@pytest.mark.parametrize("text", [f"x = {DEEP}\n", f"x = {'9' * 5000}\n"], ids=["deep", "digits"])
def test_a_configuration_that_no_reader_takes_is_refused(text: str) -> None:
    with pytest.raises(InstallError, match=r"\bTOML\b") as refused:
        config.merged(text, [Entry("spin", "/x")], path="/etc/containerd/config.toml")
    assert refused.value.reason is FailureReason.CONFIG_UNREADABLE
    assert not config.same_meaning(text, "")

"""Arguments of the installer: former options are refused with the present name."""

from __future__ import annotations

import pytest

from node_installer.settings import read_settings
from support.suite.naming import lacking


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--restart-seconds", "5"], ["--restart-seconds", "--restart-timeout"]),
        (["--lock-seconds=5"], ["--lock-seconds", "--lock-timeout"]),
    ],
)
def test_a_former_option_is_refused_with_the_present_one(
    arguments: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(["install", *arguments], {})
    assert ended.value.code == 2
    assert lacking(capsys.readouterr().err, *named) == []

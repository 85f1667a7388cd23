"""Settings of the console: a proxy that any client could imitate is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.app import create_app
from console.settings import Settings
from trellis.config.settings import SettingsError, load


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"console_auth": "proxy"}, "TRELLIS_CONSOLE_PROXY_SECRET_FILE"),
        ({"console_auth": "nobody"}, "TRELLIS_CONSOLE_AUTH"),
        ({"console_user_header": "X User"}, "TRELLIS_CONSOLE_USER_HEADER"),
        ({"console_tls_cert_file": "/a"}, "TRELLIS_CONSOLE_TLS_KEY_FILE"),
        ({"console_proxy_ca_file": "/a"}, "TRELLIS_CONSOLE_PROXY_NAMES"),
        ({"console_viewers": 0}, "TRELLIS_CONSOLE_VIEWERS"),
        ({"console_url": "console.example"}, "TRELLIS_CONSOLE_URL"),
    ],
)
def test_the_setting_that_is_invalid_or_missing_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(Settings, **given)


@pytest.mark.parametrize("secret", ["", "short", None])
def test_a_secret_that_can_be_guessed_is_refused(tmp_path: Path, secret: str | None) -> None:
    path = tmp_path / "secret"
    if secret is not None:
        path.write_text(secret)
    with pytest.raises(SettingsError, match="TRELLIS_CONSOLE_PROXY_SECRET_FILE"):
        create_app(load(Settings, console_auth="proxy", console_proxy_secret_file=path))


def test_by_default_it_accepts_tokens_and_impersonates_no_user() -> None:
    app = create_app(load(Settings))
    assert app._proxy is None


@pytest.mark.parametrize(
    ("given", "secure"),
    [({}, False), ({"console_url": "http://c.example"}, False), ({"console_url": "https://c.example"}, True)],
)
def test_a_cookie_is_for_tls_alone_where_there_is_tls(given: dict[str, Any], secure: bool) -> None:
    assert load(Settings, **given).secure is secure

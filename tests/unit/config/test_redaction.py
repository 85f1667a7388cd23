"""No password of a URL leaves."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.installer_api.redaction import redact_url

_WORD = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+=:@%", min_size=8)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://user:pass@host:4222", "nats://user:***@host:4222"),
        ("nats://token@host", "nats://***@host"),
        ("nats://token@host:4222", "nats://***@host:4222"),
        ("nats://token@host:4222,mail@x", "nats://***@x"),
        ("nats://u:p@ss@host", "nats://u:***@host"),
        ("nats://u:p/s?s#@host", "nats://u:***@host"),
        ("nats://:pass@host", "nats://:***@host"),
        ("nats://a:4222,nats://token@b:4222", "nats://a:4222,nats://***@b:4222"),
        ("https://registry:5000/shim@sha256:0af7", "https://registry:5000/shim@sha256:0af7"),
        ("https://[::1]:443/path@v1", "https://[::1]:443/path@v1"),
        ("nats://a:b@x:1,nats://c:d@y:2", "nats://a:***@x:1,nats://c:***@y:2"),
        ("cannot reach https://u:p@h/x?y (refused)", "cannot reach https://u:***@h/x?y (refused)"),
        ("https://host/path@v1", "https://host/path@v1"),
        ("https://host/?mail=a@b", "https://host/?mail=a@b"),
        ("mail me@example.org", "mail me@example.org"),
        ("https://b.s3.test/x?X-Amz-Date=1&X-Amz-Signature=ab", "https://b.s3.test/x?X-Amz-Date=1&X-Amz-Signature=***"),
        ('Get "https://s.test/b?se=1&sig=a%2Fb": 403', 'Get "https://s.test/b?se=1&sig=***": 403'),
        ("https://u:p@h/x?access_token=ab&y=1", "https://u:***@h/x?access_token=***&y=1"),
        ("https://host/?design=ab&sigma=1", "https://host/?design=ab&sigma=1"),
        ("is token=ab valid?", "is token=ab valid?"),
        ("", ""),
    ],
)
def test_the_secret_part_is_hidden_and_the_rest_kept(text: str, shown: str) -> None:
    assert redact_url(text) == shown


@given(_WORD, _WORD)
def test_no_password_survives(user: str, password: str) -> None:
    shown = redact_url(f"nats://{user}:{password}@host")
    name = user.partition(":")[0]
    assert shown == ("nats://***@host" if "@" in name else f"nats://{name}:***@host")

"""The credentials of a service on the bus: an unusable file is one clear line, and its content is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_watcher.settings import Settings as WatcherSettings
from provisioner.settings import Settings as ProvisionerSettings
from support.suite.naming import lacking
from trellis.config.nats_credentials import Credentials, CredentialsError, Kind, new_seed
from trellis.config.settings import ServiceSettings, SettingsError, load

SEED = new_seed()
CREDS = f"""\
-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVIn0.c2ln
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "user.nk"


def line(**overrides: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load(ServiceSettings, **overrides)
    (text,) = str(caught.value).splitlines()
    assert SEED not in text
    return text


def test_a_seed_file_is_an_identity(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"{SEED}\n")
    monkeypatch.setenv("TRELLIS_NATS_NKEY_FILE", str(path))
    credentials = load(ServiceSettings).nats_credentials
    assert credentials == Credentials(path, Kind.NKEY)
    identity = credentials.read()
    assert identity.public_key.startswith("U")
    assert identity.jwt is None
    assert len(identity.sign("nonce")) == 88


def test_a_credentials_file_is_an_identity(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(CREDS)
    monkeypatch.setenv("TRELLIS_NATS_CREDENTIALS_FILE", str(path))
    credentials = load(ServiceSettings).nats_credentials
    assert credentials is not None
    assert credentials.read().jwt == "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVIn0.c2ln"


def test_services_in_one_process_have_a_file_each(tmp_path: Path) -> None:
    for service in ("node_watcher", "provisioner", "cli"):
        (tmp_path / f"{service}.c1.nk").write_text(new_seed())
    pattern = tmp_path / "{service}.c1.nk"
    for settings in (WatcherSettings, ProvisionerSettings, ServiceSettings):
        credentials = load(settings, nats_nkey_file=pattern).nats_credentials
        assert credentials is not None
        assert credentials.path == tmp_path / f"{settings.service}.c1.nk"
    (tmp_path / "cli.c1.nk").unlink()
    assert line(nats_nkey_file=pattern).endswith(f"no such file or directory, for {tmp_path / 'cli.c1.nk'}")


def test_without_a_file_there_are_no_credentials() -> None:
    assert load(ServiceSettings).nats_credentials is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "garbage",
        SEED[:-1],
        SEED[:20] + ("A" if SEED[20] != "A" else "B") + SEED[21:],
        SEED.lower(),
        f"S{'A' * 57}",
        CREDS,
    ],
    ids=["empty", "garbage", "cut off", "mistyped", "lower case", "no user", "credentials"],
)
def test_a_file_without_a_seed_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    message = line(nats_nkey_file=path)
    assert message.startswith(f"TRELLIS_NATS_NKEY_FILE (--nats-nkey-file): has '{path}', ")
    assert "(SU…)" in message


def test_binary_rubbish_is_refused(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 1000)
    assert "(SU…)" in line(nats_nkey_file=path)


@pytest.mark.parametrize(
    ("content", "lacks"), [(SEED, "user JWT"), (CREDS.split("*", maxsplit=1)[0], "user seed")], ids=["seed", "JWT"]
)
def test_half_of_credentials_are_refused(path: Path, content: str, lacks: str) -> None:
    path.write_text(content)
    assert line(nats_credentials_file=path).rpartition(": ")[2].count(lacks) == 1


def test_a_missing_file_and_a_directory_are_refused(path: Path) -> None:
    assert line(nats_nkey_file=path).endswith("(SU…): no such file or directory")
    assert line(nats_nkey_file=path.parent).endswith("(SU…): is a directory")


def test_two_identities_are_one_too_many(path: Path) -> None:
    path.write_text(CREDS)
    seed = path.with_suffix(".seed")
    seed.write_text(SEED)
    message = line(nats_nkey_file=seed, nats_credentials_file=path)
    assert lacking(message, "TRELLIS_NATS_NKEY_FILE", "TRELLIS_NATS_CREDENTIALS_FILE") == []


def test_a_file_is_reread_each_time(path: Path) -> None:
    credentials = Credentials(path, Kind.NKEY)
    path.write_text(SEED)
    first = credentials.read().public_key
    path.write_text(new_seed())
    assert credentials.read().public_key != first
    path.unlink()
    with pytest.raises(CredentialsError):
        credentials.read()

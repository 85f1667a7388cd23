"""By whose word the bus is believed: a file with authorities, checked when the settings are read."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from support.suite.naming import lacking
from trellis.config.authorities import trust
from trellis.config.nats_credentials import Credentials, Kind, new_seed
from trellis.config.settings import ServiceSettings, SettingsError, load
from unit.node_installer.servers import certificates

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIUBsPbDXzpwsM9SkvBNiPB4kDxlZ0wCgYIKoZIzj0EAwIw
-----END CERTIFICATE-----
"""


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    """A bundle as systems have it: names of authorities in any script between the certificates."""
    path = tmp_path / "bundle.crt"
    path.write_text("# Autorité\n" + Path(certifi.where()).read_text(encoding="utf-8"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), ("", "PEM"), ("garbage", "PEM"), (AUTHORITY, "PEM"), ("é", "PEM")],
    ids=["missing", "empty", "garbage", "cut short", "no ASCII"],
)  # fmt: skip
def test_a_file_without_authorities_is_one_clear_line(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(ServiceSettings, nats_ca_file=path)
    (line,) = str(caught.value).splitlines()
    assert lacking(line, "TRELLIS_NATS_CA_FILE", str(path), reason) == []


def test_without_a_file_the_address_has_all_options() -> None:
    assert load(ServiceSettings).nats_credentials is None


def test_authorities_stand_beside_a_seed_or_alone(tmp_path: Path, authorities: Path) -> None:
    seed = tmp_path / "user.nk"
    seed.write_text(new_seed())
    assert load(ServiceSettings, nats_ca_file=authorities).nats_credentials == Credentials(
        None, Kind.ADDRESS, authorities
    )
    assert load(ServiceSettings, nats_ca_file=authorities, nats_nkey_file=seed).nats_credentials == Credentials(
        seed, Kind.NKEY, authorities
    )
    assert trust(authorities).get_ca_certs()


def test_authorities_of_the_system_are_trusted_besides_those_of_a_file_on_request(
    tmp_path: Path, authorities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    file = certificates(tmp_path / "own") / "ca.pem"
    assert len(trust(file).get_ca_certs()) == 1
    assert len(trust(file, system=True).get_ca_certs()) == 1 + len(trust(authorities).get_ca_certs())


@pytest.mark.parametrize(("given", "fine"), [(1, True), (3, True), (5, True), (0, False), (6, False)])
def test_streams_have_from_one_to_five_copies(given: int, *, fine: bool) -> None:
    if fine:
        assert load(ServiceSettings, stream_replicas=given).stream_replicas == given
    else:
        with pytest.raises(SettingsError):
            load(ServiceSettings, stream_replicas=given)

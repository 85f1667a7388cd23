"""TLS of a lattice connection: the place of its key, and the message about an unusable one."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from trellis.bus.connection.user_client import UserClient
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.tls import CertificateError, client_context
from trellis_dev.localcluster.certs import KUBELET_CLIENT, write_pki


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    directory = tmp_path / "pki"
    directory.mkdir()
    write_pki(directory, nodes=["any"])
    return directory


@pytest.fixture
def pair(pki: Path) -> str:
    return "\n".join((pki / f"{KUBELET_CLIENT}.{end}").read_text() for end in ("crt", "key"))


@pytest.mark.parametrize("in_memory", [True, False], ids=["where memory has files", "where it has none"])
def test_a_key_file_is_readable_only_by_its_owner_and_only_while_it_is_loaded(
    tmp_path: Path, pair: str, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool
) -> None:
    directory, seen = tmp_path / "tmp", []
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, path: str, **options: Any) -> None:
        seen.append((Path(path).parent, stat.S_IMODE(Path(path).stat().st_mode) & 0o077))
        load(context, path, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    assert client_context(NatsAddress("nats://127.0.0.1", certificate=pair)) is not None
    if not in_memory:
        assert seen == [(directory, 0)]
    assert len(seen) == 1
    assert list(directory.iterdir()) == []


def test_an_address_without_certificates_takes_the_servers_word() -> None:
    assert client_context(NatsAddress("nats://127.0.0.1")) is None


@pytest.mark.parametrize("authorities", ["no certificate", "no certificate: é", "-----BEGIN CERTIFICATE-----\nMII\n"])
def test_an_authority_that_is_none_is_named_by_its_key(authorities: str) -> None:
    with pytest.raises(CertificateError, match=r"^ca\.crt\b.*\bleafTls\b"):
        client_context(NatsAddress("nats://127.0.0.1", authorities=authorities))


def test_no_secret_of_an_address_is_shown(pair: str) -> None:
    address = NatsAddress("nats://127.0.0.1", certificate=pair)
    assert not [line for line in pair.splitlines() if line and line in repr(address)]


async def test_a_truncated_tls_shutdown_closes_the_socket() -> None:
    started, deleted = asyncio.Event(), []

    class Client:
        async def close(self) -> None:
            started.set()
            await asyncio.Event().wait()

        def hang_up(self) -> None:
            deleted.append(True)

    ending = asyncio.create_task(UserClient.close_permanently(cast("UserClient", Client()), 1.0))
    await started.wait()
    ending.cancel()
    await asyncio.wait({ending})
    assert deleted == [True]

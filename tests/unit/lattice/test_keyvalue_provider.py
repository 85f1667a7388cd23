"""The stand-in for keyvalue-nats: its encoding, and the archive in which a host finds it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import VerifyKey

from support.lattices.keyvalue_provider import read_number, read_text, write_number, write_text
from support.lattices.provider_archive import provider_archive
from trellis.config.nkey import Prefix, decode_public

PROGRAM = b"#!/bin/true\n"


@pytest.mark.parametrize(("value", "written"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_numbers_are_leb128(value: int, written: bytes) -> None:
    assert write_number(value) == written


@given(st.integers(0, 2**64 - 1), st.text())
def test_written_text_and_numbers_are_read_back(value: int, text: str) -> None:
    data = write_text(text) + write_number(value)
    read, at = read_text(data, 0)
    assert (read, read_number(data, at)) == (text, (value, len(data)))


def test_an_archive_has_the_program_and_claims_with_its_hash_and_a_valid_signature() -> None:
    with tarfile.open(fileobj=io.BytesIO(provider_archive("kv", PROGRAM))) as archive:
        [claims, program] = archive.getmembers()
        files = {entry.name: file.read() for entry in (claims, program) if (file := archive.extractfile(entry))}
    target = program.name.removesuffix(".bin")
    assert (claims.name, files[program.name]) == ("claims.jwt", PROGRAM)
    head, body, signature = (decoded(part) for part in files["claims.jwt"].decode().split("."))
    requests = json.loads(body)
    assert json.loads(head) == {"typ": "jwt", "alg": "Ed25519"}
    assert requests["wascap"]["target_hashes"] == {target: hashlib.sha256(PROGRAM).hexdigest().upper()}
    issuer = VerifyKey(decode_public(requests["iss"], Prefix.ACCOUNT))
    assert issuer.verify(files["claims.jwt"].rpartition(b".")[0], signature)
    assert decode_public(requests["sub"], Prefix.PROVIDER)


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

"""The first two checks: who sealed, and whether it opens."""

import base64
from collections.abc import Mapping

import pytest
from nacl.public import PrivateKey

from secrets_backend.domain.keys import CurveKey, KeyFormatError, KeyRing
from secrets_backend.domain.refusals import ErrorName
from support.secrets.opened_requests import KEYS, Opening, accepted, refusal
from support.secrets.secret_requests import (
    ACCOUNT,
    HOST_HEADER,
    SENDER,
    SENDER_PUBLIC,
    SERVER,
    SERVER_SEED,
    X,
    asking,
    headers,
    nkey,
    nkey_seed,
    sealed,
)

GOOD = sealed(asking())
RAW = bytes(SENDER.public_key)
OTHER = PrivateKey(b"o" * 32)

HEADERS: dict[str, tuple[Mapping[str, str] | None, ErrorName | None]] = {
    "no headers at all": (None, ErrorName.INVALID_HEADERS),
    "no header of that name": ({}, ErrorName.INVALID_HEADERS),
    "another header only": ({"Traceparent": SENDER_PUBLIC}, ErrorName.INVALID_HEADERS),
    "an empty header": ({HOST_HEADER: ""}, ErrorName.INVALID_HEADERS),
    "a header of blanks": ({HOST_HEADER: " \t "}, ErrorName.INVALID_HEADERS),
    "the name in lower case": ({HOST_HEADER.lower(): SENDER_PUBLIC}, ErrorName.INVALID_HEADERS),
    "the name in upper case": ({HOST_HEADER.upper(): SENDER_PUBLIC}, ErrorName.INVALID_HEADERS),
    "the name as Go would write it": ({"Wasmcloud-Host-Xkey": SENDER_PUBLIC}, ErrorName.INVALID_HEADERS),
    "the name with a blank": ({f"{HOST_HEADER} ": SENDER_PUBLIC}, ErrorName.INVALID_HEADERS),
    "the right key": ({HOST_HEADER: SENDER_PUBLIC}, None),
    "the right key with blanks around": ({HOST_HEADER: f" {SENDER_PUBLIC}\t"}, None),
    "the right key among other headers": ({"X-Y": "z", HOST_HEADER: SENDER_PUBLIC}, None),
    "the right key under two names": ({HOST_HEADER.lower(): "X", HOST_HEADER: SENDER_PUBLIC}, None),
    "two keys in one header": ({HOST_HEADER: f"{SENDER_PUBLIC},{SENDER_PUBLIC}"}, ErrorName.DECRYPTION),
    "a line break after the key": ({HOST_HEADER: f"{SENDER_PUBLIC}\n"}, ErrorName.DECRYPTION),
    "the key of somebody else": (headers(OTHER), ErrorName.DECRYPTION),
    "the server's own key": (headers(SERVER), ErrorName.DECRYPTION),
    "the key in lower case": ({HOST_HEADER: SENDER_PUBLIC.lower()}, ErrorName.DECRYPTION),
    "the key with its last letter off": ({HOST_HEADER: SENDER_PUBLIC[:-1]}, ErrorName.DECRYPTION),
    "the key with one more letter": ({HOST_HEADER: SENDER_PUBLIC + "A"}, ErrorName.DECRYPTION),
    "the key with padding": ({HOST_HEADER: SENDER_PUBLIC + "===="}, ErrorName.DECRYPTION),
    "padding within 56 characters": ({HOST_HEADER: SENDER_PUBLIC[:-1] + "="}, ErrorName.DECRYPTION),
    "a digit that is not in base32": ({HOST_HEADER: SENDER_PUBLIC[:-1] + "1"}, ErrorName.DECRYPTION),
    "a letter outside of ASCII": ({HOST_HEADER: SENDER_PUBLIC[:-1] + "É"}, ErrorName.DECRYPTION),
    "a wrong checksum": ({HOST_HEADER: nkey(X, RAW)[:-4] + "AAAA"}, ErrorName.DECRYPTION),
    "31 bytes": ({HOST_HEADER: nkey(X, RAW[:31])}, ErrorName.DECRYPTION),
    "33 bytes": ({HOST_HEADER: nkey(X, RAW + b"\0")}, ErrorName.DECRYPTION),
    "the kind of an account": ({HOST_HEADER: nkey(0, RAW)}, ErrorName.DECRYPTION),
    "the kind of a host": ({HOST_HEADER: nkey(104, RAW)}, ErrorName.DECRYPTION),
    "a prefix with a bit too many": ({HOST_HEADER: nkey(X | 1, RAW)}, ErrorName.DECRYPTION),
    "a signing key": ({HOST_HEADER: ACCOUNT.public}, ErrorName.DECRYPTION),
    "a seed": ({HOST_HEADER: nkey_seed(X, RAW)}, ErrorName.DECRYPTION),
    "64 digits of base16": ({HOST_HEADER: RAW.hex()}, ErrorName.DECRYPTION),
    "a thousand letters": ({HOST_HEADER: "X" * 1000}, ErrorName.DECRYPTION),
}


@pytest.mark.parametrize("case", HEADERS)
def test_the_header_names_the_sender(case: str) -> None:
    given, expected = HEADERS[case]
    opening = Opening(GOOD, given)
    if expected is None:
        assert accepted(opening).reply_to == SENDER_PUBLIC
    else:
        refused = refusal(opening, asking())
        assert refused.error is expected
        assert refused.body() == b'{"error":"%s"}' % expected.encode()


# RFC 7748, section 6.1, and what every implementation refuses since: shared keys that everybody knows.
_P = 2**255 - 19
LOW_ORDER = {
    "0": 0,
    "1": 1,
    "of order 8": int.from_bytes(
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"), "little"
    ),
    "of order 8, twisted": int.from_bytes(
        bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"), "little"
    ),
    "p - 1": _P - 1,
    "p": _P,
    "p + 1": _P + 1,
    "0 with the unused bit": 1 << 255,
    "p with the unused bit": _P + (1 << 255),
}


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_host_key_of_low_order_is_none(point: str) -> None:
    given = {HOST_HEADER: nkey(X, LOW_ORDER[point].to_bytes(32, "little"))}
    for payload in (GOOD, b"xkv1" + bytes(40), b"xkv1" + bytes(24) + bytes(100)):
        assert refusal(Opening(payload, given)).error is ErrorName.DECRYPTION


def test_the_unused_bit_of_a_host_key_is_unused() -> None:
    """As RFC 7748 has it: the key is another text, and the same point."""
    raw = RAW[:31] + bytes([RAW[31] | 0x80])
    assert accepted(Opening(GOOD, {HOST_HEADER: nkey(X, raw)})).secret == "app-secrets"


BOXES: dict[str, bytes] = {
    "nothing": b"",
    "the version alone": b"xkv1",
    "version and nonce": GOOD[:28],
    "one byte of tag": GOOD[:29],
    "43 bytes": GOOD[:43],
    "44 bytes of zero": bytes(44),
    "44 bytes of a longer box": GOOD[:44],
    "the last byte off": GOOD[:-1],
    "one byte more": GOOD + b"\0",
    "twice": GOOD * 2,
    "the version xkv0": b"xkv0" + GOOD[4:],
    "the version xkv2": b"xkv2" + GOOD[4:],
    "the version in upper case": b"XKV1" + GOOD[4:],
    "no version": GOOD[4:],
    "a changed nonce": GOOD[:4] + bytes([GOOD[4] ^ 1]) + GOOD[5:],
    "a changed tag": GOOD[:28] + bytes([GOOD[28] ^ 0x80]) + GOOD[29:],
    "a changed text": GOOD[:60] + bytes([GOOD[60] ^ 1]) + GOOD[61:],
    "a changed last byte": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "not sealed at all": asking(),
    "sealed for somebody else": sealed(asking(), server=OTHER),
    "sealed by somebody else": sealed(asking(), sender=OTHER),
    "in base64": base64.b64encode(GOOD),
    "in base16": GOOD.hex().encode(),
    "a blank in front": b" " + GOOD,
}


@pytest.mark.parametrize("case", BOXES)
def test_an_undecryptable_message_discloses_nothing(case: str) -> None:
    refused = refusal(Opening(BOXES[case], headers()), b"" if BOXES[case] == asking() else asking())
    assert refused.error is ErrorName.DECRYPTION
    assert refused.body() == b'{"error":"DecryptionError"}'


def test_each_of_the_first_hundred_bits_and_bytes_of_a_box_counts() -> None:
    for place in range(100):
        for bit in range(8):
            changed = bytearray(GOOD)
            changed[place] ^= 1 << bit
            assert refusal(Opening(bytes(changed), headers())).error is ErrorName.DECRYPTION, (place, bit)


def test_a_box_of_an_empty_text_opens() -> None:
    assert refusal(Opening(sealed(b""), headers())).error is ErrorName.INVALID_PAYLOAD


def test_a_box_may_have_any_nonce() -> None:
    for nonce in (bytes(24), b"\xff" * 24):
        assert accepted(Opening(sealed(asking(), nonce=nonce), headers())).field == "password"


# A rotation: hosts keep the public key that they asked for first.
OLD, OLDER, DROPPED = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3))
RING = KeyRing(KEYS.current, tuple(CurveKey.from_seed(nkey_seed(X, bytes(key))) for key in (OLD, OLDER)))


@pytest.mark.parametrize("key", [SERVER, OLD, OLDER], ids=["the current", "the one before", "the oldest"])
def test_a_box_opens_with_every_key_of_the_ring(key: PrivateKey) -> None:
    assert accepted(Opening(sealed(asking(), server=key), headers(), RING)).field == "password"


def test_a_box_does_not_open_with_a_key_that_was_dropped() -> None:
    refused = refusal(Opening(sealed(asking(), server=DROPPED), headers(), RING))
    assert refused.error is ErrorName.DECRYPTION


SEEDS = {
    "empty": "",
    "a public key": SENDER_PUBLIC,
    "a seed of an account": ACCOUNT.seed,
    "lower case": SERVER_SEED.lower(),
    "the last letter off": SERVER_SEED[:-1],
    "one letter more": SERVER_SEED + "A",
    "a wrong checksum": SERVER_SEED[:-5] + ("AAAAA" if SERVER_SEED[-5:] != "AAAAA" else "BBBBA"),
    "stray last bits": SERVER_SEED[:-1] + chr(ord(SERVER_SEED[-1]) + 1),
    "31 bytes": nkey_seed(X, bytes(31)),
    "33 bytes": nkey_seed(X, bytes(33)),
    "two seeds": f"{SERVER_SEED}\n{SERVER_SEED}",
    "letters outside of ASCII": "É" * 58,
    "base32 of something else": base64.b32encode(bytes(36)).decode().rstrip("="),
    "padding": SERVER_SEED + "======",
    "padding instead of letters": SERVER_SEED[:-2] + "==",
}


@pytest.mark.parametrize("case", SEEDS)
def test_a_seed_that_is_none_is_refused_and_not_shown(case: str) -> None:
    with pytest.raises(KeyFormatError) as caught:
        CurveKey.from_seed(SEEDS[case])
    assert caught.value.__context__ is None
    assert not SEEDS[case] or SEEDS[case] not in f"{caught.value!r}"


def test_a_seed_may_have_blanks_around_it_as_files_have() -> None:
    assert CurveKey.from_seed(f"  {SERVER_SEED}\r\n") == KEYS.current

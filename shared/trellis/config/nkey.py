"""NATS' nkeys as text: base32 without padding of prefix, 32 bytes and CRC-16/XMODEM, little endian.

Pure. In: the text of a public key or a seed. Out: its 32 bytes, and back. Called by ``nats_credentials``, and by
secrets_backend for keys and tokens of wasmCloud.
Invariants: each key has exactly one text: lower case, padding, blanks, a wrong checksum and stray last bits are
rejected. A message contains no part of a text, as a seed used as a public key would be logged.
"""

from __future__ import annotations

import base64
import binascii
from enum import IntEnum
from typing import Final

KEY_BYTES: Final = 32
_CRC_BYTES: Final = 2
_PUBLIC_BYTES: Final = 1 + KEY_BYTES + _CRC_BYTES
_SEED_BYTES: Final = 2 + KEY_BYTES + _CRC_BYTES
_PUBLIC_LENGTH: Final = 56
_SEED_LENGTH: Final = 58
_SEED_PREFIX: Final = 18 << 3  # S
_SEED_PADDING: Final = "=" * 6


class KeyFormatError(ValueError):
    """An invalid text of a key; the message names the problem and contains no part of the text."""


class Prefix(IntEnum):
    """The type of a key: its first byte, which determines the first letter."""

    ACCOUNT = 0  # A
    CLUSTER = 2 << 3  # C
    COMPONENT = 12 << 3  # M
    HOST = 13 << 3  # N
    OPERATOR = 14 << 3  # O
    USER = 20 << 3  # U
    PROVIDER = 21 << 3  # V
    CURVE = 23 << 3  # X

    @property
    def letter(self) -> str:
        """The first letter of such a public key."""
        return chr(ord("A") + (self >> 3))


def encode_public(prefix: Prefix, raw: bytes) -> str:
    """Return the text of a public key, 56 characters."""
    return _text(bytes([prefix]) + raw)


def decode_public(text: str, *allowed: Prefix) -> bytes:
    """Return the 32 bytes of a public key of one of the types ``allowed``.

    Raises:
        KeyFormatError: the text is not an nkey, or has another type.
    """
    if len(text) != _PUBLIC_LENGTH:
        raise KeyFormatError(f"a key has {_PUBLIC_LENGTH} characters, this has {len(text)}")
    raw = _raw(text, "")
    if raw is None or len(raw) != _PUBLIC_BYTES:
        raise KeyFormatError("it is not base32")
    if not _intact(raw):
        raise KeyFormatError("its checksum is wrong")
    if raw[0] not in allowed:
        letters = " or ".join(f"{prefix.letter}…" for prefix in allowed)
        raise KeyFormatError(f"it is not a key of type {letters}")
    return raw[1:-_CRC_BYTES]


def encode_seed(prefix: Prefix, raw: bytes) -> str:
    """Return the text of a seed, 58 characters."""
    return _text(bytes([_SEED_PREFIX | prefix >> 5, (prefix & 31) << 3]) + raw)


def decode_seed(text: str, prefix: Prefix) -> bytes:
    """Return the 32 bytes of a seed of the type ``prefix``.

    Raises:
        KeyFormatError: the text is not a seed, or has another type.
    """
    if len(text) != _SEED_LENGTH:
        raise KeyFormatError(f"a seed has {_SEED_LENGTH} characters, this has {len(text)}")
    raw = _raw(text, _SEED_PADDING)
    if raw is None or len(raw) != _SEED_BYTES:
        raise KeyFormatError("it is not base32")
    if not _intact(raw):
        raise KeyFormatError("its checksum is wrong")
    seed = raw[2:-_CRC_BYTES]
    if encode_seed(prefix, seed) != text:
        raise KeyFormatError(f"it is not a seed of type S{prefix.letter}…")
    return seed


def _text(prefixed: bytes) -> str:
    return base64.b32encode(prefixed + _checksum(prefixed)).decode().rstrip("=")


def _raw(text: str, padding: str) -> bytes | None:
    try:
        return base64.b32decode(text + padding)
    except ValueError:  # binascii.Error is a ValueError; text that is not ASCII raises one too
        return None


def _intact(raw: bytes) -> bool:
    return _checksum(raw[:-_CRC_BYTES]) == raw[-_CRC_BYTES:]


def _checksum(prefixed: bytes) -> bytes:
    return binascii.crc_hqx(prefixed, 0).to_bytes(_CRC_BYTES, "little")

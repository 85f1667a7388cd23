"""The curve keys with which requests and answers are sealed.

In: seeds of the key Secret. Out: keys for ``box``. Called by ``key_secret``, and by ``protocol``, which generates a new
key for each answer.
Invariant: ``repr``, messages and tracebacks show only the public half of a key. Keys are compared in constant time.
Python can neither lock nor overwrite ``bytes``: a seed is in memory until its key is garbage-collected, and a copy may
remain in a freed page; any process that can read the memory of this one can read the keys.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from nacl import bindings

from trellis.config.nkey import (
    KEY_BYTES,
    KeyFormatError,
    Prefix,
    decode_public,
    decode_seed,
    encode_public,
    encode_seed,
)

__all__ = ["CurveKey", "KeyFormatError", "KeyRing"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CurveKey:
    """An X25519 key pair. ``public``: its public half as an nkey, X… of 56 characters."""

    public: str
    _secret: bytes

    @classmethod
    def from_seed(cls, seed: str) -> CurveKey:
        """Return the key of a seed, SX… of 58 characters; surrounding white space is ignored.

        Raises:
            KeyFormatError: it is not a seed of a curve key.
        """
        return cls._of(decode_seed(seed.strip(), Prefix.CURVE))

    @classmethod
    def make(cls) -> CurveKey:
        """Return a new key."""
        return cls._of(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def _of(cls, secret: bytes) -> CurveKey:
        return cls(encode_public(Prefix.CURVE, bindings.crypto_scalarmult_base(secret)), secret)

    def seed(self) -> str:
        """Return the seed, SX…; only for the key Secret."""
        return encode_seed(Prefix.CURVE, self._secret)

    def shared_with(self, other: str) -> bytes:
        """Return the shared key of this key pair and another one; ``other``: its public curve key, X….

        Raises:
            KeyFormatError: ``other`` is not a public curve key, or one of the few with which every shared key is known
                (RFC 7748, section 6.1).
        """
        public = decode_public(other, Prefix.CURVE)
        shared = _before(public, self._secret)
        if shared is None:
            raise KeyFormatError("it is a key of low order")
        return shared

    def __repr__(self) -> str:
        return f"CurveKey({self.public})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CurveKey):
            return NotImplemented
        return hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self.public)

    def __reduce__(self) -> str:
        raise TypeError("a curve key is not pickled: its seed would leave the process")


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The published key, and the former ones, newest first, which still open requests sealed to them."""

    current: CurveKey
    previous: tuple[CurveKey, ...] = ()


def _before(public: bytes, secret: bytes) -> bytes | None:
    try:
        return bindings.crypto_box_beforenm(public, secret)
    except RuntimeError:  # nacl.exceptions.RuntimeError is one: libsodium rejects the point
        return None

"""Boxes of the secrets protocol: ``xkv1``, 24 bytes of nonce, a NaCl box (16 bytes of tag, then the ciphertext).

Pure except for the nonce. In: bytes, a key pair, the other side's public key. Out: the sealed or the opened bytes.
Called by ``protocol``. libsodium compares the tag in constant time. PyNaCl takes and returns ``bytes``: an opened text
is in memory until it is garbage-collected.
Source: nkeys' XKey (``seal``, ``open``), which is ``crypto_box`` with a version prefix.
"""

from __future__ import annotations

import secrets
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from secrets_backend.domain.keys import CurveKey, KeyFormatError, KeyRing

_VERSION: Final = b"xkv1"
_NONCE_BYTES: Final = bindings.crypto_box_NONCEBYTES
_HEAD_BYTES: Final = len(_VERSION) + _NONCE_BYTES
OVERHEAD: Final = _HEAD_BYTES + bindings.crypto_secretbox_MACBYTES
"""Difference in bytes between a box and its text."""


class BoxError(ValueError):
    """A box does not open; the message has the reason, and nothing of the content."""


def seal(text: bytes, sender: CurveKey, recipient: str) -> bytes:
    """Return ``text`` sealed by ``sender`` for ``recipient``, a public curve key.

    Raises:
        KeyFormatError: ``recipient`` is not a public curve key.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _VERSION + nonce + bindings.crypto_box_easy_afternm(text, nonce, sender.shared_with(recipient))


def unseal(sealed: bytes, keys: KeyRing, sender: str) -> bytes:
    """Return the text that ``sender``, a public curve key, sealed for one of ``keys``; the current one is tried first.

    Raises:
        BoxError: it is not a box, or none of the keys opens it.
        KeyFormatError: ``sender`` is not a public curve key.
    """
    if len(sealed) < OVERHEAD:
        raise BoxError(f"a box has at least {OVERHEAD} bytes, this has {len(sealed)}")
    if not sealed.startswith(_VERSION):
        raise BoxError("it is not a box of version xkv1")
    nonce, box = sealed[len(_VERSION) : _HEAD_BYTES], sealed[_HEAD_BYTES:]
    for key in (keys.current, *keys.previous):
        text = _opened(box, nonce, key.shared_with(sender))
        if text is not None:
            return text
    raise BoxError("none of the keys opens it: the host may hold one that was dropped, until it is restarted")


def _opened(box: bytes, nonce: bytes, shared: bytes) -> bytes | None:
    try:
        return bindings.crypto_box_open_easy_afternm(box, nonce, shared)
    except CryptoError:
        return None


__all__ = ["OVERHEAD", "BoxError", "KeyFormatError", "seal", "unseal"]

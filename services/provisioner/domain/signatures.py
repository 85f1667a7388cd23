"""Verifies that a trusted key signed the sources of a Shim.

Pure. In: public keys as PEM, views of Shims. Out: the same views, with the sources that no key signed. Called by
``provisioner`` wherever it reads a Shim. Nothing is downloaded: the signature covers the checksum of a source, so it is
verified before a Job is created for any node.
Source: cosign's signature specification (base64 of ECDSA P-256 or RSA PKCS #1 v1.5 over SHA-256; for images over a
payload in the simple signing format, which names the digest of the image).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from trellis.installer_api.json_text import read_json
from trellis.installer_api.spec import Source
from trellis.provisioning.shims import ShimView, Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

SIGNATURE_TYPE: Final = "cosign container image signature"
"""Type of a payload in the simple signing format."""
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)
_DIGEST = re.compile(r"oci(?:\+http)?://[^@]+@(sha256:[0-9a-f]{64})")
_SHA256 = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")
_CURVE: Final = "secp256r1"
_RSA_BITS: Final = 2048


@dataclass(frozen=True, slots=True)
class Keys:
    """Public keys, one PEM block each. Without keys, no signature is required."""

    pems: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Return the keys of a text of concatenated PEM blocks.

        Raises:
            ValueError: it has no key, other content, or a key of an unsupported kind, which the message names.
        """
        found = _KEY.findall(text)
        if _KEY.sub("", text).strip() or (text.strip() and not found):
            message = "needs public keys as `cosign generate-key-pair` writes them into cosign.pub, one after another"
            raise ValueError(message)
        for number, pem in enumerate(found, start=1):
            try:
                _read(pem)
            except ValueError as error:
                message = f"key {number} of {len(found)}: {error}"
                raise ValueError(message) from None
        return cls(tuple(found))

    def judge(self, shim: ShimView) -> ShimView:
        """Return a Shim with the sources that none of these keys signed."""
        if not self.pems:
            return shim
        pairs = zip(shim.sources, shim.signatures, strict=True)
        return replace(shim, unsigned=frozenset(source for source, by in pairs if not self._signed(source, by)))

    def _signed(self, source: Source, signature: Signature | None) -> bool:
        return signature is not None and any(_is_signed(source, signature, pem) for pem in self.pems)


@lru_cache(maxsize=1024)  # a Shim is re-read at every change of its status
def _is_signed(source: Source, signature: Signature, pem: str) -> bool:
    digest = _signed_digest(source, signature)
    try:
        value = base64.b64decode(signature.value, validate=True)
    except binascii.Error:
        return False
    return digest is not None and _verify(pem, value, digest)


def _signed_digest(source: Source, signature: Signature) -> bytes | None:
    """Return the SHA-256 that a signature covers, None if it cannot be one for this source."""
    image = _DIGEST.fullmatch(source.location)
    if image is None:
        known = _SHA256.fullmatch(source.sha256 or source.binary_sha256 or "")
        return bytes.fromhex(known[1]) if known and signature.payload is None else None
    if signature.payload is None:
        return None
    try:
        payload = base64.b64decode(signature.payload, validate=True)
        critical = read_json(payload)["critical"]
        named = critical["type"] == SIGNATURE_TYPE and critical["image"]["docker-manifest-digest"] == image[1]
    except (ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(payload).digest() if named else None


@lru_cache(maxsize=16)
def _read(pem: str) -> EllipticCurvePublicKey | RSAPublicKey:
    """Return a key.

    Raises:
        ValueError: it cannot be read, or is of an unsupported kind.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415 - 5 MiB, where keys are named only
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(pem.encode())
    except Exception as error:
        message = "it cannot be read"
        raise ValueError(message) from error
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == _CURVE:
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _RSA_BITS:
        return key
    message = f"it is neither an ECDSA key on P-256 nor an RSA key of {_RSA_BITS} bits or more"
    raise ValueError(message)


def _verify(pem: str, signature: bytes, digest: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, padding, utils  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    key, how = _read(pem), utils.Prehashed(SHA256())
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, digest, ec.ECDSA(how))
        else:
            key.verify(signature, digest, padding.PKCS1v15(), how)
    except InvalidSignature:
        return False
    return True

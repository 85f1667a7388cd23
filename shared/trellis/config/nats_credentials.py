"""Credentials of a NATS user: a file with an nkey seed, or a NATS credentials file with a JWT and a seed.

In: paths, also that of the CA certificates. Out: the public key, and signatures of nonces of the server. Called by
``settings``, which rejects an invalid file, and by ``trellis.bus`` at each connect, so that a rotated file applies to
the next one.
Invariant: no message contains a part of a file.
Source: NATS' nkeys (Ed25519, as text in ``nkey``) and its decorated credentials files.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from trellis.config.nkey import KEY_BYTES, KeyFormatError, Prefix, decode_seed, encode_public, encode_seed

_FILE_MAX: Final = 64 * 1024
_JWT_BLOCK = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.-]+)\s+-+END NATS USER JWT-+")
_SEED_BLOCK = re.compile(r"-+BEGIN USER NKEY SEED-+\s+([A-Z2-7]+)\s+-+END USER NKEY SEED-+")


class CredentialsError(Exception):
    """An invalid credentials file; the message for users names the required content and the problem."""


class Kind(StrEnum):
    """The type of credentials."""

    NKEY = "a NATS user seed (SU…)"
    CREDENTIALS = "NATS credentials (a user JWT and its seed)"
    ADDRESS = "the user in the address"


@dataclass(frozen=True, slots=True)
class Identity:
    """A NATS user. ``sign`` accepts the nonce of the server and returns the signature in base64."""

    public_key: str
    jwt: str | None
    sign: Callable[[str], bytes]


class IdentitySource(Protocol):
    """A source of the identity for each connect."""

    @property
    def where(self) -> str:
        """Location of the secret, for messages."""

    def read(self) -> Identity:
        """Return the current identity.

        Raises:
            CredentialsError: the source has no valid identity.
        """


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files with the secret of a user and with the CA certificates of the server.

    ``path`` is None if the address contains the user. Without ``ca_file``, the CAs of the system verify a server with
    TLS; with it, the server must have TLS.
    """

    path: Path | None
    kind: Kind
    ca_file: Path | None = None

    @property
    def where(self) -> str:
        """The path of the file."""
        return str(self.path)

    def read(self) -> Identity:
        """Return the identity in the current file.

        Raises:
            CredentialsError: the file is missing, is not readable, or has other content.
        """
        try:
            return identity_of(self._text(), self.kind)
        except CredentialsError as error:
            reason = str(error)
            raise CredentialsError(f"needs a file with {self.kind.value}: {reason[:1].lower()}{reason[1:]}") from None

    def _text(self) -> str:
        if self.path is None:
            raise CredentialsError("no file is set")
        try:
            with self.path.open("rb") as file:
                content = file.read(_FILE_MAX)
        except OSError as error:
            raise CredentialsError(error.strerror or type(error).__name__) from None
        return content.decode("ascii", errors="replace")


@dataclass(frozen=True, slots=True)
class CachedCredentials:
    """The secret of a user that is already read, as from a Kubernetes Secret; ``where`` names the source in messages.

    Two are equal if their secrets are, regardless of the source.
    """

    text: str = field(repr=False)
    kind: Kind
    where: str = field(compare=False)

    def read(self) -> Identity:
        """Return the identity.

        Raises:
            CredentialsError: the text has other content.
        """
        return identity_of(self.text, self.kind)


def identity_of(text: str, kind: Kind) -> Identity:
    """Return the identity in a seed, or in NATS' decorated credentials.

    Raises:
        CredentialsError: the text has no complete identity; the message contains no part of the text.
    """
    if kind is Kind.NKEY:
        return _identity(text.strip(), None)
    jwt, seed = _JWT_BLOCK.search(text), _SEED_BLOCK.search(text)
    if jwt is None or seed is None:
        raise CredentialsError(f"it contains no {'user JWT' if jwt is None else 'user seed'}")
    return _identity(seed[1], jwt[1])


def _identity(seed: str, jwt: str | None) -> Identity:
    from nacl.signing import SigningKey  # noqa: PLC0415 (uses 0.8 MiB; not required in development)

    try:
        key = SigningKey(decode_seed(seed, Prefix.USER))
    except KeyFormatError:
        raise CredentialsError("it contains no complete user seed") from None
    public = encode_public(Prefix.USER, key.verify_key.encode())
    return Identity(public, jwt, lambda nonce: base64.b64encode(key.sign(nonce.encode()).signature))


def new_seed() -> str:
    """Return the seed of a new user."""
    return encode_seed(Prefix.USER, secrets.token_bytes(KEY_BYTES))


def new_routes_password() -> str:
    """Return a new password between NATS servers, which have no nkeys; it needs no escaping in a URL."""
    return secrets.token_hex(KEY_BYTES)

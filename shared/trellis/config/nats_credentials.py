"""Who a service is on the bus: a file that holds an nkey seed, or NATS' credentials file with a JWT and a seed.

And by which authorities it knows the bus. In: paths. Out: the public key, signatures of what the server asks, a context
for TLS. Called by ``settings``, which refuses a file that cannot be used, and by ``trellis.bus`` at each connect, so
that a rotated file counts from the next one on.
Invariant: nothing of a file's content is in any message.
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
    """A file that cannot be used; the text says what is needed and what is wrong, for users."""


class Kind(StrEnum):
    """What is in the file."""

    NKEY = "a NATS user seed (SU…)"
    CREDENTIALS = "NATS credentials (a user JWT and its seed)"
    ADDRESS = "the user in the address"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user that can answer the server. ``sign`` takes its nonce and returns the signature in base64."""

    public_key: str
    jwt: str | None
    sign: Callable[[str], bytes]


class IdentitySource(Protocol):
    """Whatever can say who connects, again at each connect."""

    @property
    def where(self) -> str:
        """Where the secret is, for messages."""

    def read(self) -> Identity:
        """Return the identity of now.

        Raises:
            CredentialsError: there is none that can be used.
        """


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where a user's secret is, and by whose word the server is believed.

    ``path`` is None where the address says who connects, ``ca_file`` where the system's authorities count, if the
    server has TLS at all. With ``ca_file`` it must have.
    """

    path: Path | None
    kind: Kind
    ca_file: Path | None = None

    @property
    def where(self) -> str:
        """The file's path."""
        return str(self.path)

    def read(self) -> Identity:
        """Return the identity the file holds now.

        Raises:
            CredentialsError: it is missing, may not be read, or holds something else.
        """
        try:
            return identity_of(self._text(), self.kind)
        except CredentialsError as error:
            why = str(error)
            raise CredentialsError(f"needs a file with {self.kind.value}: {why[:1].lower()}{why[1:]}") from None

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
class HeldCredentials:
    """A user's secret that was read from elsewhere, a Kubernetes Secret say; ``where`` names that for messages.

    Two are equal if the secret is, wherever it was read.
    """

    text: str = field(repr=False)
    kind: Kind
    where: str = field(compare=False)

    def read(self) -> Identity:
        """Return the identity.

        Raises:
            CredentialsError: the text holds something else.
        """
        return identity_of(self.text, self.kind)


def identity_of(text: str, kind: Kind) -> Identity:
    """Return the identity in a seed, or in NATS' decorated credentials.

    Raises:
        CredentialsError: there is none in it, or not a whole one; nothing of the text is in the message.
    """
    if kind is Kind.NKEY:
        return _identity(text.strip(), None)
    jwt, seed = _JWT_BLOCK.search(text), _SEED_BLOCK.search(text)
    if jwt is None or seed is None:
        raise CredentialsError(f"there is no {'user JWT' if jwt is None else 'user seed'} in it")
    return _identity(seed[1], jwt[1])


def _identity(seed: str, jwt: str | None) -> Identity:
    from nacl.signing import SigningKey  # noqa: PLC0415 (costs 0.8 MiB, and development runs without)

    try:
        key = SigningKey(decode_seed(seed, Prefix.USER))
    except KeyFormatError:
        raise CredentialsError("it contains no complete user seed") from None
    public = encode_public(Prefix.USER, key.verify_key.encode())
    return Identity(public, jwt, lambda nonce: base64.b64encode(key.sign(nonce.encode()).signature))


def new_seed() -> str:
    """Return the seed of a new user."""
    return encode_seed(Prefix.USER, secrets.token_bytes(KEY_BYTES))

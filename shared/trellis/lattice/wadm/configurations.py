"""Reads the named configurations of a lattice that contain listen addresses.

In: a connection, names. Out: the listen address of each, without other settings, which may contain secrets. Called by
``trellis.lattice.follow.comparison``. Invariants: an unreadable configuration keeps its former value; a missing one has
no address. Source: wasmCloud 1.x stores them in the KV bucket ``CONFIGDATA_<lattice>`` as maps of strings. They are
read one by one: a bucket watch of the client may stall after a restart of the server. The bucket of a tenant is in the
account of the tenant: from the account of wadm a host is queried through the control interface, which NATS imports
because wadm needs it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Collection, Mapping
from typing import Final

import orjson

from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.manifests import SETTINGS
from trellis.lattice.domain.reading import LatticeDataError, decoded
from trellis.lattice.domain.subjects import (
    SubjectError,
    configuration_ask_subject,
    configuration_get_subject,
    configuration_subject,
)
from trellis.lattice.timings import ComparisonTimings

_KEY: Final = re.compile(r"[-/_=.a-zA-Z0-9]+")
_NOT_FOUND: Final = 404
_DELETION_HEADER: Final = re.compile(rb"^KV-Operation:\s*(DEL|PURGE)\s*$", re.MULTILINE | re.IGNORECASE)
_CONCURRENT_REQUESTS: Final = 16


class NamedConfigurations:
    """Cache of named configurations. ``known``: their settings by name."""

    def __init__(
        self, address: LatticeAddress, connection: LatticeConnection, timings: ComparisonTimings = ComparisonTimings()
    ) -> None:
        self._timings = timings
        self.known: dict[str, Mapping[str, str]] = {}
        self._address = address
        self._connection = connection
        self._invalidated: set[str] = set()

    def invalidate(self, name: str) -> bool:
        """Invalidate a configuration, so that the next read queries it; return whether it is cached."""
        if name in self.known:
            self._invalidated.add(name)
        return name in self.known

    def invalidate_all(self) -> None:
        """Invalidate all configurations."""
        self._invalidated |= self.known.keys()

    def keep(self, names: Collection[str]) -> None:
        """Drop all other configurations."""
        self.known = {name: found for name, found in self.known.items() if name in names}
        self._invalidated &= self.known.keys()

    async def read(self, names: Collection[str]) -> None:
        """Read the configurations that are missing or invalidated.

        Raises:
            NatsUnavailableError: a configuration could not be read; the other ones may be read.
            LatticeDataError: an answer is invalid.
        """
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

        async def read_missing(name: str) -> None:
            async with gate:
                found = await self._get(name)
            self.known[name] = found
            self._invalidated.discard(name)

        wanted = [name for name in names if name not in self.known or name in self._invalidated]
        answers = await asyncio.gather(*map(read_missing, wanted), return_exceptions=True)
        for error in answers:
            if isinstance(error, BaseException):
                raise error

    async def _get(self, name: str) -> Mapping[str, str]:
        if not _KEY.fullmatch(name):
            return {}  # invalid as a key of a bucket
        lattice = self._address.lattice
        if self._address.account:
            return await self._ask_host(name)
        question = orjson.dumps({"last_by_subj": configuration_subject(lattice, name)})
        subject = configuration_get_subject(lattice)
        return read_configuration(await self._connection.ask(subject, question, seconds=self._timings.answer))

    async def _ask_host(self, name: str) -> Mapping[str, str]:
        try:
            subject = configuration_ask_subject(self._address.lattice, name, self._address.control_prefix)
        except SubjectError as error:
            raise LatticeDataError(str(error)) from None
        return read_host_configuration(await self._connection.ask(subject, seconds=self._timings.answer))


def read_configuration(payload: bytes) -> Mapping[str, str]:
    """Return the address settings of a configuration, empty if it does not exist, or is not a map.

    Raises:
        LatticeDataError: the answer of JetStream is invalid, or an error.
    """
    answer = decoded(payload)
    if not isinstance(answer, dict):
        raise LatticeDataError("not an answer of JetStream")
    error, message = answer.get("error"), answer.get("message")
    if isinstance(error, dict):
        if error.get("code") == _NOT_FOUND:
            return {}
        raise LatticeDataError(f"JetStream: {error.get('description') or 'an error without a description'}")
    if not isinstance(message, dict):
        raise LatticeDataError("not an answer of JetStream")
    if _DELETION_HEADER.search(_bytes(message.get("hdrs"))):
        return {}
    try:
        found = decoded(_bytes(message.get("data")))
    except LatticeDataError:
        return {}
    return _address_in(found)


def read_host_configuration(payload: bytes) -> Mapping[str, str]:
    """Return the address settings of a configuration from the answer of a host, empty if it does not exist.

    Raises:
        LatticeDataError: the answer of the control interface is invalid, or an error.
    """
    answer = decoded(payload)
    if not isinstance(answer, dict) or not isinstance(answer.get("success"), bool):
        raise LatticeDataError("not an answer of the control interface")
    if not answer["success"]:
        raise LatticeDataError(f"the host reports: {answer.get('message') or 'an error without a message'}")
    return _address_in(answer.get("response"))


def _address_in(found: object) -> Mapping[str, str]:
    if not isinstance(found, dict):
        return {}
    return {key.lower(): value for key, value in found.items() if key.lower() in SETTINGS and isinstance(value, str)}


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""

"""Client of the wadm API for the applications of one lattice.

In: a connection and the address of a lattice. Out: answers of wadm. Called by services that manage applications.
Invariants: a request has one answer within 5 s, a put within 10 s; errors contain the message of wadm; nothing is
retried. Source: wadm 0.21, ``[<account>.]wadm.api.<lattice>.model.<verb>[.<application>]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import orjson

from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, TooLargeError
from trellis.lattice.domain.models import Model, read_models, read_statuses
from trellis.lattice.domain.replies import (
    Put,
    Status,
    Version,
    read_delete,
    read_deploy,
    read_get,
    read_put,
    read_status,
    read_versions,
)
from trellis.lattice.domain.store import StoredManifest
from trellis.lattice.domain.subjects import model_list_subject, model_put_subject, model_subject
from trellis.lattice.timings import WadmTimings

Answer = TypeVar("Answer")
_JSON: Final = {"Content-Type": "application/json"}
"""Without this header, wadm parses YAML, which treats some characters as line breaks and replaces them by spaces."""


class Wadm:
    """Client of wadm for the applications of a lattice. ``wrote`` is called after wadm acknowledged a change.

    Every method raises ``NatsUnavailableError`` if wadm does not answer, ``WadmRefusedError`` if it rejects the
    request, ``LatticeDataError`` if its answer is invalid, and ``SubjectError`` for a name that is invalid in subjects.
    """

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        wrote: Callable[[], None] = lambda: None,
        timings: WadmTimings = WadmTimings(),
    ) -> None:
        self._timings = timings
        self._of = (address.lattice, address.account)
        self._connection = connection
        self._wrote = wrote

    async def models(self) -> tuple[Model, ...]:
        """Return all applications, ordered by name."""
        return (await self.models_and_statuses())[0]

    async def models_and_statuses(self) -> tuple[tuple[Model, ...], Mapping[str, Status]]:
        """Return all applications, ordered by name, and their statuses by name."""
        answer = await self._connection.ask(model_list_subject(*self._of), seconds=self._timings.answer)
        return read_models(answer), read_statuses(answer)

    async def put(self, manifest: Mapping[str, Any], beside: Iterable[StoredManifest] = ()) -> Put:
        """Store a version of an application.

        Args:
            manifest: manifest of the version.
            beside: manifests of all stored versions of the application, which share one entry of the storage.

        Raises:
            TooLargeError: manifest or entry exceeds the limit of the server; wadm would retry for 5 s, and fail without
                a reason.
        """
        subject, payload = model_put_subject(*self._of), orjson.dumps(manifest)
        sizes = [len(payload), *(len(item.json) for item in beside)]
        if len(sizes) > 1 and sum(sizes) > self._connection.limit:
            entry, remedy = f"an entry with {len(sizes)} versions", "delete old ones, `wash app delete NAME VERSION`"
            raise TooLargeError(entry, sum(sizes), self._connection.limit, remedy)
        return self._done(
            read_put(await self._connection.ask(subject, payload, seconds=self._timings.stored, headers=_JSON))
        )

    async def deploy(self, application: str, version: str) -> str | None:
        """Deploy a version, and return it; None if the application does not exist."""
        return self._done(read_deploy(await self._ask("deploy", application, {"version": version})))

    async def undeploy(self, application: str) -> bool:
        """Undeploy an application, keeping its versions; return whether it exists."""
        return self._done(read_deploy(await self._ask("undeploy", application, {}))) is not None

    async def delete(self, application: str) -> bool:
        """Delete an application with all versions; return whether it existed."""
        return self._done(read_delete(await self._ask("del", application, {"version": None})))

    async def get(self, application: str, version: str | None = None) -> Mapping[str, Any] | None:
        """Return the manifest of a version, by default the newest; None if it does not exist."""
        return read_get(await self._ask("get", application, {} if version is None else {"version": version}))

    async def versions(self, application: str) -> tuple[Version, ...] | None:
        """Return the versions of an application, the oldest first; None if it does not exist."""
        return read_versions(await self._ask("versions", application))

    async def status(self, application: str) -> Status:
        """Return the status of an application."""
        return read_status(await self._ask("status", application))

    def _done(self, answer: Answer) -> Answer:
        self._wrote()
        return answer

    async def _ask(self, verb: str, application: str, body: Mapping[str, Any] | None = None) -> bytes:
        payload = b"" if body is None else orjson.dumps(body)
        lattice, account = self._of
        subject = model_subject(lattice, verb, application, account)
        return await self._connection.ask(subject, payload, seconds=self._timings.answer)

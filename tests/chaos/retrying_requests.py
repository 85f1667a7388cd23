"""Requests of users and kubelets to the API server: directly, past all proxies, and repeated until one is accepted.

In: method, path, object. Out: status and answer. Called by every side of a run. Invariant: the event loop, in which
the proxies run, is never held up by a server that does not answer.
"""

from __future__ import annotations

import asyncio
import http
import time
from typing import Any, Final

from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
_PATIENCE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.2
_NOT_NOW: Final = {401, 403, 429}


class RetryingRequests:
    """Calls as the cluster's administrator; a connection is a thread's, and kept."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def call(self, method: str, path: str, body: Manifest | None = None) -> tuple[int, Manifest]:
        """Return an answer that is one: 2xx, or a refusal that will stay.

        Raises:
            TimeoutError: the server was in trouble for two minutes.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            response: object
            try:
                status, response = await asyncio.to_thread(self._api.call, method, path, body)
            except OSError as error:
                status, response = 0, error
            else:
                if status < http.HTTPStatus.INTERNAL_SERVER_ERROR and status not in _NOT_NOW:
                    return status, response
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path}: {status} {response}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def found(self, path: str) -> Manifest | None:
        """Return an object, None if there is none."""
        status, found = await self.call("GET", path)
        return found if status == http.HTTPStatus.OK else None

    async def items(self, path: str) -> list[Manifest]:
        """Return the objects of a list, none if there is no such kind."""
        _, found = await self.call("GET", path)
        return list(found.get("items") or ())

    async def accepted(self, method: str, path: str, body: Manifest | None = None) -> Manifest:
        """Return the answer to what has to be accepted."""
        status, answer = await self.call(method, path, body)
        assert status < http.HTTPStatus.BAD_REQUEST, f"{method} {path}: {status} {answer}"
        return answer

    async def deleted(self, path: str) -> None:
        """Ask for the deletion of an object that may be deleted already."""
        status, answer = await self.call("DELETE", path)
        assert status < http.HTTPStatus.BAD_REQUEST or status == http.HTTPStatus.NOT_FOUND, (
            f"DELETE {path}: {status} {answer}"
        )

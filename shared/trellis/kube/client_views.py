"""Views of a connection: with a guard, as another field manager, or with separate connections.

In: a connection. Out: views with the same methods. Called by services through ``trellis.kube.client.Kube``. Invariant:
a view does not change the connection.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

from trellis.kube.calls import Contact
from trellis.kube.reader import Reader
from trellis.kube.shared_transport import SharedTransport
from trellis.runtime.fair_share import FairShare
from trellis.telemetry.health import Health


class ClientViews(Reader):
    """A connection to one API server, and its views."""

    def guarded(self, guard: Callable[[], None]) -> Self:
        """Return a view that shares the connection and calls ``guard`` before each write (it raises NotLeading).

        Updates and deletes through it require uid and resourceVersion as preconditions (ValueError otherwise), because
        a write can reach the server long after the guard permitted it.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, guard=guard)  # noqa: SLF001 - a copy of this object
        return view

    def acting_as(self, user: str, groups: Sequence[str] = ()) -> Self:
        """Return a view that shares the connection and impersonates a user.

        The server determines the groups of a ServiceAccount (``system:serviceaccount:<namespace>:<name>``); any other
        user is in ``system:authenticated`` and in ``groups``. Forbidden is raised if the user lacks a permission, or
        this account lacks the permission to impersonate (``permissions.missing_right``). A guard is kept.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, user=user, groups=tuple(groups))  # noqa: SLF001 - a copy
        return view

    def with_token(self, token: str) -> Self:
        """Return a view that sends all requests with a bearer token, as the user of the token.

        Requires a connection ``without_identity``: the server would prefer a client certificate.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, token=token)  # noqa: SLF001 - a copy of this object
        return view

    def for_viewer(self, connections: int, health: Health) -> Self:
        """Return a view with separate connections and health, isolated from other views. The caller closes it.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        view = copy.copy(self)
        transport = self._caller.transport.apart(connections)
        view._caller = dataclasses.replace(self._caller, transport=transport, contact=Contact())  # noqa: SLF001 - a copy
        view.health = health
        return view

    def apart(self, connections: int, each: int) -> Self:
        """Return a view with separate connections for requests on behalf of tenants. The caller closes it.

        Slow requests of tenants do not delay the requests of this object, and do not count for the availability of the
        API server. An impersonated user, or the namespace of a ServiceAccount, has at most ``each`` of the
        ``connections`` at a time; a request that gets none in time raises ``Unavailable``.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        view = copy.copy(self)
        inner = self._caller.transport.apart(connections)
        transport = SharedTransport(inner, FairShare(connections, each), self.timings.share)
        view._caller = dataclasses.replace(self._caller, transport=transport, contact=Contact())  # noqa: SLF001 - a copy
        return view

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
from trellis.runtime.fair_share import Shares
from trellis.telemetry.health import Health


class ClientViews(Reader):
    """A connection to one API server, and who it can be."""

    def guarded(self, guard: Callable[[], None]) -> Self:
        """Return a view that shares the connection and calls ``guard`` before each write (it raises NotLeading).

        What changes or deletes an object through it has to name the uid and the resourceVersion that were read;
        ValueError otherwise. A write may reach the server long after the guard let it pass.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, guard=guard)  # noqa: SLF001 - a copy of this object
        return view

    def acting_as(self, user: str, groups: Sequence[str] = ()) -> Self:
        """Return a view that shares the connection and does all that is asked through it as another user.

        Of a ServiceAccount (``system:serviceaccount:<namespace>:<name>``) the server itself knows the groups, any other
        user is in ``system:authenticated`` and in ``groups``. Forbidden is raised where the user may not do it, and
        where we may not be that user (``rights.missing_right``). A guard stays.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, user=user, groups=tuple(groups))  # noqa: SLF001 - a copy
        return view

    def with_token(self, token: str) -> Self:
        """Return a view that does all that is asked through it by a bearer token, as whoever that is of.

        Only of a connection that was made ``without_identity``: the server would take a client certificate first.
        """
        view = copy.copy(self)
        view._caller = dataclasses.replace(self._caller, token=token)  # noqa: SLF001 - a copy of this object
        return view

    def for_viewer(self, connections: int, health: Health) -> Self:
        """Return a view with connections and health of its own: what becomes of it is nobody else's affair.

        Whoever made it closes it.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        view = copy.copy(self)
        transport = self._caller.transport.apart(connections)
        view._caller = dataclasses.replace(self._caller, transport=transport, contact=Contact())  # noqa: SLF001 - a copy
        view.health = health
        return view

    def apart(self, connections: int, each: int) -> Self:
        """Return a view with connections of its own, for what is done on behalf of others; whoever made it closes it.

        However slow their requests are, those of this object do not wait for them, and whether the API server answers
        is not judged by them. A user who is acted as, or the namespace of a ServiceAccount, has at most ``each`` of the
        ``connections`` at a time; who gets none in time is told by ``Unavailable``.

        Raises:
            AccessError: a certificate or key cannot be loaded.
        """
        view = copy.copy(self)
        inner = self._caller.transport.apart(connections)
        transport = SharedTransport(inner, Shares(connections, each), self.timings.share)
        view._caller = dataclasses.replace(self._caller, transport=transport, contact=Contact())  # noqa: SLF001 - a copy
        return view

"""Reads from the cluster for a page or a row, and notes kinds that could not be read.

In: a connection. Out: objects, leaders, notes. Called by ``explain_read`` and ``status``. Writes nothing. Invariant: a
missing permission, and a kind that is not served, is a note that names it; the caller handles other errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.permissions import missing_right
from trellis.kube.resources import Manifest, Resource
from trellis.read_model.explain.page import Leader, Line
from trellis.read_model.reading.leaders import read_leader
from trellis.read_model.reading.served import NotServedError, list_served

PERMISSIONS: Final = "permissions"
"""Subject of the notes on permissions that this account does not have."""
REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads of one command. ``namespace``: of the installation; ``notes``: kinds that could not be read, with reasons.

    ``unread``: why not all objects of a kind were read; ``unserved``: kinds that the API server does not serve.
    """

    kube: Kube
    namespace: str
    notes: list[Line] = field(default_factory=list)
    unread: dict[Resource, str] = field(default_factory=dict)
    unserved: set[Resource] = field(default_factory=set)

    async def wide(
        self, res: Resource, namespace: str | None, *, labels: str | None = None, fields: str | None = None
    ) -> list[Manifest]:
        """Return the objects of all namespaces; without permission, with a note, those of the named one.

        Raises:
            KubeError: they could not be read for another reason.
        """
        before = len(self.notes)
        found = await self.list(res, labels=labels, fields=fields)
        if len(self.notes) == before or namespace is None:
            return found
        return await self.list(res, namespace, labels=labels, fields=fields)

    async def list(
        self,
        res: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Manifest]:
        """Return the objects of a kind; none where it is not defined, or with a note where they cannot be read.

        Raises:
            KubeError: they could not be read for another reason.
        """
        try:
            found = await list_served(self.kube, res, namespace, labels=labels, fields=fields)
        except (NotServedError, NotFound) as error:
            found = None
            about = PERMISSIONS if isinstance(error, NotServedError) and error.denied else "kinds"
            self._note(about, str(error), res)
        except Forbidden as error:
            found = []
            self.lacks(error, res)
        if found is None:
            self.unserved.add(res)
        return found or []

    async def get(self, res: Resource, name: str, namespace: str | None = None) -> Manifest | None:
        """Return an object, None if there is none, or with a note if it is forbidden; raises KubeError."""
        try:
            return await self.kube.get(res, name, namespace)
        except NotFound:
            return None
        except Forbidden as error:
            self.lacks(error, res)
            return None

    async def leader(self, service: str, otherwise: str) -> Leader:
        """Return the leader of a service, as far as this account can read it; raises KubeError."""
        try:
            holder, trouble = await read_leader(self.kube, self.namespace, service)
        except Forbidden:
            return Leader(service, None, otherwise)
        return Leader(service, holder, otherwise, trouble)

    async def allowed(self, review: dict[str, Any]) -> bool | None:
        """Return the result of a SubjectAccessReview, None without permission to create it; raises KubeError."""
        try:
            answer = await self.kube.create(REVIEWS, {**review, "metadata": {"name": ""}})
        except Forbidden as error:
            self.lacks(error, REVIEWS)
            return None
        return bool((answer.get("status") or {}).get("allowed"))

    def lacks(self, error: Forbidden, res: Resource) -> None:
        """Note a missing permission, once."""
        right = missing_right(error)
        about, what = (PERMISSIONS, f"cannot {right}") if right else ("refused", f"was refused: {error}")
        self._note(about, f"this account {what}", res)

    def knows(self, res: Resource) -> bool:
        """Return whether all objects of a kind were read."""
        return res not in self.unread

    def reasons(self, *kinds: Resource) -> dict[str, str]:
        """Return by kind why its objects are unknown, for those of ``kinds`` that were not all read."""
        return {res.kind: self.unread[res] for res in kinds if res in self.unread}

    def _note(self, about: str, why: str, res: Resource) -> None:
        self.unread.setdefault(res, why)
        line = Line(about, f"{why}, so the state of {res.kind} objects is unknown")
        if line not in self.notes:
            self.notes.append(line)

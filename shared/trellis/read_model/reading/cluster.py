"""Reads from the cluster for a page or a row, and remembers which kinds could not be read for it.

In: a connection. Out: objects, leaders, notes. Called by ``explain_read`` and ``status``. Writes nothing. Invariant: a
right that this account lacks, and a kind that is not served, is a note that names it; other errors are the caller's.
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

REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one command reads. ``namespace``: of the installation; ``notes``: what could not be read, and why.

    ``unserved``: kinds that the API server does not serve.
    """

    kube: Kube
    namespace: str
    notes: list[Line] = field(default_factory=list)
    unread: set[Resource] = field(default_factory=set)
    unserved: set[Resource] = field(default_factory=set)

    async def wide(
        self, res: Resource, namespace: str | None, *, labels: str | None = None, fields: str | None = None
    ) -> list[Manifest]:
        """Return the objects of all namespaces; where this account may not, with a note those of one, if it is named.

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
            self._note(Line("kinds", f"{error}, so what {res.kind}s say is not known here"), res)
        except Forbidden as error:
            found = []
            self.lacks(error, res)
        if found is None:
            self.unserved.add(res)
        return found or []

    async def get(self, res: Resource, name: str, namespace: str | None = None) -> Manifest | None:
        """Return an object, None if there is none, or with a note if it may not be read; raises KubeError."""
        try:
            return await self.kube.get(res, name, namespace)
        except NotFound:
            return None
        except Forbidden as error:
            self.lacks(error, res)
            return None

    async def leader(self, service: str, otherwise: str) -> Leader:
        """Return who leads a service, as far as this account may know; raises KubeError."""
        try:
            holder, trouble = await read_leader(self.kube, self.namespace, service)
        except Forbidden:
            return Leader(service, None, otherwise)
        return Leader(service, holder, otherwise, trouble)

    async def allowed(self, review: dict[str, Any]) -> bool | None:
        """Return what a SubjectAccessReview says, None where this account may not ask; raises KubeError."""
        try:
            answer = await self.kube.create(REVIEWS, {**review, "metadata": {"name": ""}})
        except Forbidden as error:
            self.lacks(error, REVIEWS)
            return None
        return bool((answer.get("status") or {}).get("allowed"))

    def lacks(self, error: Forbidden, res: Resource) -> None:
        """Note a right that is lacking, once."""
        right = missing_right(error)
        what = f"may not {right}" if right else f"was refused: {error}"
        self._note(Line("rights", f"this account {what}, so what {res.kind}s say is not known here"), res)

    def knows(self, res: Resource) -> bool:
        """Return whether what was read of a kind is all that there is."""
        return res not in self.unread

    def _note(self, line: Line, res: Resource) -> None:
        self.unread.add(res)
        if line not in self.notes:
            self.notes.append(line)

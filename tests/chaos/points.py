"""The boundaries at which a process can die between a message and its acknowledgement, and their names.

Pure. In: what is about to be sent, or was answered. Out: a ``Point``'s name, as ``create jobs, before``. Called by
``crash_at_point`` in the process that dies, and by ``crashes``, once for each. Source: "acknowledged means done": a
message is acknowledged after the writes of a run that began after it came, so a crash before a write, after it, or
before the acknowledgement repeats work and loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trellis.kube.transport import HttpRequest

ACKNOWLEDGE: Final = "acknowledge"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_WORK: Final = ("leases", "selfsubject", "subjectaccessreviews", "localsubject", "tokenreviews", "tokenrequests")
"""Asked or renewed without any work under way."""
_CORE, _GROUP = 2, 3
"""Where the resource begins in a path: /api/v1/…, /apis/group/version/…"""
_READS: Final = ("get", "list", "versions", "status", "history")
"""What wadm is asked without being told anything."""


class When(StrEnum):
    """On which side of a boundary."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """``what`` is sent, for the ``nth`` time in this process, and ``when`` it dies."""

    what: str
    nth: int
    when: When

    def __str__(self) -> str:
        return f"{self.what} #{self.nth}, {self.when}"


def of_request(request: HttpRequest) -> str:
    """Return what a call to the API server writes, "" for one that writes nothing or is no work."""
    parts = request.path.strip("/").split("/")
    rest = parts[_CORE:] if parts[0] == "api" else parts[_GROUP:]
    if len(rest) > _CORE and rest[0] == "namespaces":
        rest = rest[_CORE:]
    if request.method == "GET" or not rest or rest[0].startswith(_NO_WORK):
        return ""
    return " ".join((_VERBS[request.method], "/".join([rest[0], *rest[2:]])))


def of_subject(subject: str) -> str:
    """Return the type of the event that is stored in a stream of the bus."""
    kind, *tokens = subject.split(".")[1:]
    return f"publish {'.'.join(tokens[1:3])}" if kind == "evt" else f"publish {kind}"


def of_wadm_request(subject: str) -> str:
    """Return the change that wadm is asked for, "" for a query or a request to another service:
    ``wadm.api.<lattice>.model.<verb>``.
    """
    _, _, subject_rest = subject.partition("wadm.api.")
    verb = [*subject_rest.split("."), "", "", ""][2]
    return f"wadm {verb}" if subject_rest and verb not in _READS else ""


def of_reply(reply: str) -> str:
    """Return the consumer whose acknowledgement goes to a message's reply subject: ``$JS.ACK.<stream>.<consumer>.…``.

    A consumer is called ``<whose>-<of what>-…``, then by its lattice and its cluster.
    """
    return f"{ACKNOWLEDGE} {'-'.join(reply.split('.')[3].split('-')[:2])}"

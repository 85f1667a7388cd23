"""Kinds that a ``FakeKube`` does not serve, with or without their CRD."""

from __future__ import annotations

from trellis.crds.kinds import APPLICATIONS, KINDS, make_definition
from trellis.kube.resources import DEFINITIONS, Resource
from trellis_dev.fakes.fake import FakeKube, status_reply


def refuse(kube: FakeKube, res: Resource, status: int = 404, reason: str = "NotFound") -> None:
    """Let every list of a kind be answered so."""
    kube.answer_next(
        99, lambda _: status_reply(status, reason, "refused"), when=lambda item: item.path.endswith(f"/{res.plural}")
    )


def define(kube: FakeKube, *, served: bool) -> None:
    """Put the CRDs of all kinds, as served or not."""
    verdict = "True" if served else "False"
    conditions = [{"type": "Established", "status": verdict, "reason": "x", "message": "terminating"}]
    for kind in (*KINDS, APPLICATIONS):
        kube.put(DEFINITIONS, make_definition(kind) | {"status": {"conditions": conditions}})

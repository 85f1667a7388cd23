"""The pages of nodes and Shims for a viewer who may not read all that they depend on.

An object that cannot be read is never one that does not exist: the page names the permission, and concludes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis import names
from trellis.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, SHIMS, Resource
from trellis.provisioning.ledger import Entry, Ledger, make_ledger
from trellis.read_model.explain.page import Explanation
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import page_of
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply

Manifest = dict[str, Any]

SYSTEM = "trellis-system"
INSTALLERS = "trellis-installers"
OPT_IN = {names.ANNOTATION_OPT_IN: "true"}
OPT_OUT = {names.ANNOTATION_OPT_IN: "false"}
VERIFIED = {
    names.ANNOTATION_DIGEST: "d1",
    names.ANNOTATION_VERIFIED: "handler",
    names.ANNOTATION_SHIMS: "spin=d1",
}
DENIED = {
    SHIMS: "list shims.runtime.spinkube.dev in all namespaces",
    JOBS: f"list jobs.batch in namespace {INSTALLERS}",
    CONFIGMAPS: f"get configmaps in namespace {SYSTEM}",
    NODES: "list nodes in all namespaces",
}
PATHS = {
    **{res: res.path() for res in (SHIMS, NODES)},
    JOBS: JOBS.path(INSTALLERS),
    CONFIGMAPS: CONFIGMAPS.path(SYSTEM, names.LEDGER),
}
SHIM: Manifest = {
    "metadata": {"name": "spin"},
    "spec": {
        "nodeSelector": {"wasm": "yes"},
        "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
        "runtimeClass": {"name": "spin", "handler": "spin"},
        "rolloutStrategy": {"type": "recreate"},
    },
    "status": {"nodes": 0, "nodesReady": 0, "nodesUpdated": 0, "observedGeneration": 1, "conditions": []},
}


@dataclass(frozen=True, slots=True)
class Case:
    """A node, the kinds that are forbidden, and its page. ``claims``: reasons that depend on what is forbidden."""

    denied: tuple[Resource, ...]
    health: Health
    reason: str
    says: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    annotations: Manifest | None = None
    halted: tuple[str, ...] = ()
    slot: bool = False
    shims: bool = True


UNKNOWN = (Health.UNKNOWN, "ReadIncomplete")
BY_SHIM = ("by the nodeSelector", "no Shim", "auto-provisioning", "not opted in", "NotOptedIn")
BY_SLOT = ("free slot", "no installer was started", "the installer runs")
CASES = {
    "a Shim could select it": Case((SHIMS,), *UNKNOWN, ("kwasm.sh/kwasm-node", "unknown"), BY_SHIM),
    "a Shim could select it, and none does": Case((SHIMS,), *UNKNOWN, (), BY_SHIM, shims=False),
    "it is verified": Case((SHIMS,), Health.HEALTHY, "Ready", ("by handler",), BY_SHIM, VERIFIED),
    "another node could have an image of KWasm": Case(
        (NODES,), Health.PROGRESSING, "Waiting", (), ("NothingToInstall",), OPT_IN, shims=False
    ),
    "it opted in by annotation": Case((SHIMS,), *UNKNOWN, ("by its annotation",), (*BY_SHIM, *BY_SLOT), OPT_IN),
    "it opted out by annotation": Case(
        (SHIMS,), Health.NOT_OPTED_IN, "NotOptedIn", ("'false'",), ("nodeSelector",), OPT_OUT
    ),
    "a halted Shim may not be one of the node": Case(
        (SHIMS,), *UNKNOWN, ("rollout of spin is halted",), ("and this node waits", *BY_SLOT), OPT_IN, ("spin",)
    ),
    "an installer could run": Case((JOBS,), *UNKNOWN, ("by its annotation",), BY_SLOT, OPT_IN),
    "an installer could run, as it has a slot": Case(
        (JOBS,), Health.PROGRESSING, "Provisioning", ("slot",), BY_SLOT, OPT_IN, slot=True
    ),
    "it could have a slot": Case((CONFIGMAPS,), *UNKNOWN, ("by its annotation",), BY_SLOT, OPT_IN),
    "an installer could run by auto-provisioning": Case(
        (JOBS,), Health.NOT_OPTED_IN, "NotOptedIn", ("auto-provisioning", "unknown"), shims=False
    ),
    "nothing can be read": Case((SHIMS, JOBS, CONFIGMAPS), *UNKNOWN, (), (*BY_SHIM, *BY_SLOT)),
}


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    made.put(NAMESPACES, {"metadata": {"name": SYSTEM}})
    return made


async def page(kube: FakeKube, kind: str, name: str, denied: tuple[Resource, ...]) -> Explanation:
    """Return the page that a viewer gets without these permissions."""
    paths = {PATHS[res]: refusal(res) for res in denied}
    kube.answer_next(
        99, lambda request: status_reply(403, "Forbidden", paths[request.path]), when=lambda item: item.path in paths
    )
    return await page_of(Reading(kube, SYSTEM), INSTALLERS, kind, name, None)


def refusal(res: Resource) -> str:
    """Return the message of the API server for a permission in ``DENIED``."""
    place = DENIED[res].partition(" in namespace ")[2]
    text = f'forbidden: User "v" cannot {DENIED[res].split()[0]} resource "{res.plural}" in API group "{res.group}"'
    return f'{text} in the namespace "{place}"' if place else f"{text} at the cluster scope"


def text_of(found: Explanation) -> str:
    """Return the headline and the steps of the object, without the leaders, which name what they would do."""
    lines = (f"{line.about}: {line.shown}" for line in found.lines if line.about not in {"provisioner", "node-watcher"})
    return "\n".join([found.headline, *lines])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_page_concludes_nothing_about_a_node_from_what_it_cannot_read(kube: FakeKube, case: Case) -> None:
    node: Manifest = {
        "metadata": {"name": "n", "labels": {"wasm": "yes"}},
        "status": {
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "runtimeHandlers": [{"name": "spin"}],
        },
    }
    uid = kube.put(NODES, node)["metadata"]["uid"]
    verified = {names.ANNOTATION_NODE_UID: uid} if case.annotations is VERIFIED else {}
    node["metadata"]["annotations"] = (case.annotations or {}) | verified
    kube.put(NODES, node)
    if case.shims:
        kube.put(SHIMS, SHIM)
    entries = {uid: Entry("d2", 1, 1000)} if case.slot else {}
    kube.put(CONFIGMAPS, make_ledger(SYSTEM, Ledger(entries, halted=case.halted), None))
    found = await page(kube, "node", "n", case.denied)
    text = text_of(found)
    assert (found.verdict.health, found.verdict.reason) == (case.health, case.reason)
    assert lacking(text, *(DENIED[res] for res in case.denied), *case.says) == []
    assert [claim for claim in case.claims if claim in text] == []


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_page_concludes_nothing_about_a_shim_from_nodes_that_it_cannot_read(
    kube: FakeKube, deleted: bool
) -> None:
    kube.put(SHIMS, SHIM | {"metadata": {"name": "spin", "finalizers": [names.FINALIZER]}})
    if deleted:
        kube.remove(SHIMS, "spin")
    text = text_of(await page(kube, "shim", "spin", (NODES,)))
    assert lacking(text, DENIED[NODES], *(["being deleted"] if deleted else [])) == []
    assert "0 nodes" not in text
    assert "\nnodes: " not in text
    assert ("\nnodes: " in text_of(await page(kube, "shim", "spin", ()))) is not deleted

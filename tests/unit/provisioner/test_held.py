"""What the circuit breaker held is withdrawn once it is not to go any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

from provisioner.app import Reconcile
from provisioner.apply import Effects
from provisioner.known import Known
from provisioner.settings import Settings
from support.withdrawals import Holding
from trellis.kube.fake import FakeKube
from trellis.ledger import Entry, Ledger
from trellis.telemetry import Metrics, setup
from trellis.testing.builders import DIGEST, a_job, a_node, opted_in


async def test_a_job_is_not_held_any_more_once_its_node_is_opted_in_again() -> None:
    telemetry = setup("provisioner", metrics=Metrics())
    node, bus = opted_in(a_node()), AsyncMock()
    known = Known(FakeKube(telemetry=telemetry), bus, Settings(), {node.name: replace(node, opt_in="false")}, {})
    known.ledger = Ledger({node.uid: Entry(DIGEST, 1, 5)})
    job = a_job(node)
    known.jobs.change(None, job)
    breaker: Any = Holding()
    effects = Effects(known.kube, bus, AsyncMock(), known, telemetry, breaker, AsyncMock(), Mock())
    reconcile = Reconcile(known, effects, telemetry)
    await reconcile.run(node.name, None)
    assert breaker.held == {job.uid}
    known.nodes = {node.name: node}
    await reconcile.run(node.name, None)
    assert breaker.held == set()

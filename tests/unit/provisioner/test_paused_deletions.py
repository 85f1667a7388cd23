"""A paused deletion is withdrawn once the object is no longer to be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from provisioner.apply import Effects
from provisioner.cache import Cache
from provisioner.gather import Gather
from provisioner.reconciler import Reconciler
from provisioner.settings import Settings
from support.nodes.shown import show_job, show_ledger, show_nodes
from support.nodes.withdrawals import PausingBreaker
from trellis.provisioning.ledger import Entry, Ledger
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in


class Provisioner:
    """One node that is not to have the runtime any more, whose installer runs; ``paused``: what the breaker pauses."""

    def __init__(self) -> None:
        telemetry = setup("provisioner", metrics=Metrics())
        self.node, bus = opted_in(a_node()), AsyncMock()
        out = {self.node.name: replace(self.node, opt_in="false")}
        self.listed = True
        self.kube = FakeKube(telemetry=telemetry)
        self.cache = Cache(
            self.kube, Settings(installer_image="example.com/kwasm:1"), out, {}, shims_known=lambda: self.listed
        )
        show_ledger(self.cache, Ledger({self.node.uid: Entry(DIGEST, 1, 5)}))
        self.job = a_job(self.node)
        show_job(self.cache, self.job)
        self.breaker: Any = PausingBreaker()
        effects = Effects(
            *(self.kube, bus, AsyncMock(), self.cache, telemetry, self.breaker, AsyncMock(), Mock(), Mock())
        )
        self.reconcile = Reconciler(Gather(self.kube, self.cache), self.cache, effects, telemetry)

    async def paused(self) -> set[str]:
        await self.reconcile.run(self.node.name, None)
        paused: set[str] = self.breaker.paused
        return paused


@pytest.fixture
async def provisioner() -> Provisioner:
    found = Provisioner()
    assert await found.paused() == {found.job.uid}
    return found


async def test_a_job_is_no_longer_paused_once_its_node_is_opted_in_again(provisioner: Provisioner) -> None:
    show_nodes(provisioner.cache, [provisioner.node])
    assert await provisioner.paused() == set()


async def test_a_job_stays_paused_while_shims_cannot_be_listed(provisioner: Provisioner) -> None:
    provisioner.listed = False
    show_job(provisioner.cache, replace(provisioner.job, installs="spin=1"))
    assert await provisioner.paused() == {provisioner.job.uid}

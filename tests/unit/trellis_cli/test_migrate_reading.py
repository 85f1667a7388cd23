"""Reading the groups of wasmcloud-operator: many at once, no more than the API server answers, in their order."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from support.lattices.host_groups import MINIMAL
from trellis.kube.client import Kube
from trellis.kube.errors import Call, Unavailable
from trellis.kube.resources import HOST_CONFIGS, Resource
from trellis_cli.migrate import wasmcloud as migrate_wasmcloud
from trellis_cli.migrate.wasmcloud import read_groups

GROUPS = 50


def groups() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": HOST_CONFIGS.api_version,
            "kind": HOST_CONFIGS.kind,
            "metadata": {"name": f"g-{number}", "namespace": "ns", "uid": f"u-{number}"},
            "spec": MINIMAL,
        }
        for number in range(GROUPS)
    ]


class Slow:
    """An API server of which the first calls are answered last."""

    def __init__(self, *, broken: str = "") -> None:
        self.under_way = self.most = self.calls = 0
        self._broken = broken

    async def get(self, res: Resource, name: str, namespace: str) -> dict[str, Any]:
        self.calls += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(max(1, 40 - self.calls)):
            await asyncio.sleep(0)
        self.under_way -= 1
        if name == self._broken:
            call = Call("GET", res.kind, res.plural, namespace, name)
            raise Unavailable(call, status=0, reason="Unavailable", message="the server went away")
        return {"metadata": {"name": name, "namespace": namespace}}


async def test_groups_are_read_together_and_reported_in_their_order() -> None:
    server, found = Slow(), groups()
    read = await read_groups(cast("Kube", server), found)
    assert [item.manifest for item in read] == found
    for item in read:
        assert {name for _, name in item.children} == {item.manifest["metadata"]["name"]}
    assert server.most == migrate_wasmcloud._CALLS_AT_ONCE
    assert server.calls == GROUPS * 6


async def test_an_unreadable_group_ends_the_reading() -> None:
    with pytest.raises(Unavailable, match="went away"):
        await read_groups(cast("Kube", Slow(broken="g-30")), groups())

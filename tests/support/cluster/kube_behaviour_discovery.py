"""Discovery of the kinds of an API server: part of the suite in kube_behaviour."""

from __future__ import annotations

import pytest

from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery, UnknownKind, served_versions
from trellis.kube.resources import ALL, APPLICATIONS, CONFIGMAPS, HOST_CONFIGS, HTTP_ROUTES, JOBS, NODES, SHIMS

# Of definitions that a cluster has only once somebody applied them.
_DEFINED_LATER = {APPLICATIONS.group, HOST_CONFIGS.group, HTTP_ROUTES.group, SHIMS.group, "trellis.dev"}


class DiscoveryBehaviour:
    """Kinds by apiVersion and kind."""

    async def test_every_builtin_kind_is_discovered_at_its_known_group(self, kube: Kube) -> None:
        discovery = Discovery(kube)
        for known in ALL:
            if known.group not in _DEFINED_LATER:
                found = await discovery.resource(known.api_version, known.kind, verbs=("list", "watch"))
                assert found == known

    @pytest.mark.parametrize(
        ("api_version", "kind", "named"),
        [
            ("v1", "configmaps", "kind configmaps"),
            ("v1", "Job", "kind Job"),
            ("batch/v9", "Job", "batch/v9"),
            ("nobody.example/v1", "Thing", "nobody.example/v1"),
            ("../../readyz/v1", "Thing", "../../readyz/v1"),
            ("", "Thing", "Thing"),
        ],
    )
    async def test_a_missing_kind_is_reported_by_its_name(
        self, kube: Kube, api_version: str, kind: str, named: str
    ) -> None:
        with pytest.raises(UnknownKind) as caught:
            await Discovery(kube).resource(api_version, kind)
        assert named in caught.value.message
        assert (caught.value.status, caught.value.reason) == (404, "UnknownKind")

    async def test_a_group_has_its_versions_and_one_that_is_not_there_has_none(self, kube: Kube) -> None:
        assert JOBS.version in await served_versions(kube, JOBS.group)
        assert await served_versions(kube, "nobody.example") == ()

    async def test_kinds_of_one_group_are_one_question(self, kube: Kube) -> None:
        discovery = Discovery(kube)
        assert await discovery.resource("v1", "Node") == NODES
        assert await discovery.resource("v1", "ConfigMap") == CONFIGMAPS
        assert await discovery.resource("batch/v1", "Job") == JOBS

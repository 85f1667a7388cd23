"""Modules from ConfigMaps, files and volumes, and what is to be pinned wherever it is."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from controller_host.module.sources import Sources
from support.cluster.kube_world import configmap
from support.guests.module_sources import SHA, USER, WASM, files, world
from support.suite.naming import lacking
from trellis.kube.errors import Unavailable
from trellis.kube.resources import CONFIGMAPS
from trellis.registries.domain.errors import SourceReason
from trellis_dev.fakes.fake import status_reply


@pytest.mark.parametrize(
    "module",
    [{"url": "https://example.com/x.wasm"}, {"path": "x"}, {"oci": {"image": "ghcr.io/team/ttl:1"}}],
    ids=["an address", "a file", "a tag"],
)
async def test_an_unpinned_module_is_not_run(tls: Path, tmp_path: Path, module: dict[str, Any]) -> None:
    async with world(tls, tmp_path, files()) as here:
        assert (await here.refusal(**module)).reason is SourceReason.NOT_PINNED


async def test_a_module_in_a_config_map_is_read_as_the_account(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        binary = {"module.wasm": base64.b64encode(WASM).decode()}
        here.kube.put(CONFIGMAPS, configmap("team", "ttl", text="hello") | {"binaryData": binary})
        assert await here.fetch(configMap={"name": "ttl", "key": "module.wasm"}) == WASM
        assert here.kube.api.requests[-1].headers["Impersonate-User"] == USER
        assert await here.fetch(configMap={"name": "ttl", "key": "module.wasm"}, sha256=SHA) == WASM
        for module, named in {
            ("ttl", "text"): ["ConfigMap ttl", "namespace team", "data", "binaryData"],
            ("ttl", "none"): ["ConfigMap ttl", "namespace team", "none", "binaryData"],
            ("gone", "x"): ["ConfigMap gone", "namespace team"],
        }.items():
            refused = await here.refusal(configMap={"name": module[0], "key": module[1]})
            assert (refused.reason, lacking(refused.message, *named)) == (SourceReason.NOT_FOUND, [])
        wrong = await here.refusal(configMap={"name": "ttl", "key": "module.wasm"}, sha256="0" * 64)
        assert wrong.reason is SourceReason.CHECKSUM_MISMATCH


async def test_a_read_that_the_account_may_not_make_is_forbidden_and_an_outage_is_not(
    tls: Path, tmp_path: Path
) -> None:
    async with world(tls, tmp_path, files()) as here:
        for expected_text, advice in {
            f'User "{USER}" cannot get resource "configmaps" in API group "" in the namespace "team"': (
                "get configmaps"
            ),
            'User "system:serviceaccount:t:host" cannot impersonate resource "serviceaccounts" in API group "" in the '
            'namespace "team"': "`trellis controllers roles -n team -a ttl | kubectl apply -f -`",
            'User "system:serviceaccount:t:host" cannot impersonate-on:serviceaccount:get resource "configmaps" in API '
            'group "" in the namespace "team"': "`trellis controllers roles -n team -a ttl | kubectl apply -f -`",
            "exceeded quota": "exceeded quota",
        }.items():
            here.kube.answer_next(
                1, lambda _, expected_text=expected_text: status_reply(403, "Forbidden", expected_text)
            )  # type: ignore[misc]
            refused = await here.refusal(configMap={"name": "ttl", "key": "x"})
            assert refused.reason is SourceReason.FORBIDDEN
            assert lacking(refused.message, "ConfigMap ttl", "namespace team") == []
            assert advice in refused.message
        here.kube.fail_next(2)
        with pytest.raises(Unavailable):
            await here.fetch(configMap={"name": "ttl", "key": "x"})


async def test_files_and_volumes_are_below_the_directory(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        (here.folder / "dir").mkdir()
        (here.folder / "dir/x.wasm").write_bytes(WASM)
        volume = here.folder / "volumes/team/claim/deep"
        volume.mkdir(parents=True)
        (volume / "y.wasm").write_bytes(WASM)
        assert await here.fetch(path="dir/x.wasm", sha256=SHA) == WASM
        assert await here.fetch(pvc={"claimName": "claim", "path": "deep/y.wasm"}, sha256=SHA) == WASM
        for path in ("volumes/team/claim/deep/y.wasm", "./volumes/team/x", "dir/../volumes/team/x"):
            assert (await here.refusal(path=path, sha256=SHA)).reason is SourceReason.NOT_ALLOWED
        unmounted = await here.refusal(pvc={"claimName": "other", "path": "x"}, sha256=SHA)
        assert lacking(unmounted.message, "team/other") == []
        here.sources = Sources(here.kube.acting_as, here.web, None)
        assert "TRELLIS_CONTROLLER_MODULES_DIR" in (await here.refusal(path="x", sha256=SHA)).message


async def test_a_digest_confirms_no_source_that_needs_a_fetch(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert not await here.confirm(configMap={"name": "m", "key": "k"}, sha256=SHA)
        assert not await here.confirm(pvc={"claimName": "c", "path": "p"}, sha256=SHA)
        assert await here.confirm(url=here.url(), sha256=SHA)
        assert await here.confirm(path="x.wasm", sha256=SHA)
        assert not here.server.requests


async def test_a_pipe_on_a_volume_delays_no_other(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        os.mkfifo(here.folder / "pipe")
        async with asyncio.timeout(5):
            assert (await here.refusal(path="pipe", sha256=SHA)).reason is SourceReason.NOT_FOUND

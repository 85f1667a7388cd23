"""Modules from every source, over a real https server, and what is said where they cannot be had."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import ipaddress
import json
import os
import socket
import ssl
import tarfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from yarl import URL

from controller_host import layers, source_errors, transfers, web
from controller_host.source_errors import SourceError, SourceReason
from controller_host.sources import Asked, Sources
from controller_host.web import Web
from support.kube_world import configmap
from trellis.crds.wasm_controllers import Module
from trellis.kube.errors import Unavailable
from trellis.kube.fake import FakeKube, status_reply
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS
from unit.node_installer.servers import Answer, Registry, Request, Server, certificates, serving

WASM = b"\0asm\x01\0\0\0" + b"\0" * 100
SHA = hashlib.sha256(WASM).hexdigest()
USER = "system:serviceaccount:team:ttl"
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
LOGIN = "me:hunter2"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class World:
    """Sources beside a server of the test's own, which has a certificate of the test's own."""

    def __init__(self, folder: Path, server: Server, allowed: list[Any]) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": "team"}})
        self.folder = folder / "modules"
        self.folder.mkdir()
        self.server = server
        self.web = Web(allowed, ssl.create_default_context(cafile=folder / "tls/ca.pem"))
        self.sources = Sources(self.kube.acting_as, self.web, self.folder)

    async def fetch(self, **module: Any) -> bytes:
        async with self.sources.turn(Asked("team", Module.model_validate(module), USER)) as fetch:
            return await fetch.module()

    async def confirm(self, user: str = USER, **module: Any) -> bool:
        async with self.sources.turn(Asked("team", Module.model_validate(module), user)) as fetch:
            return await fetch.confirm()

    async def refusal(self, **module: Any) -> SourceError:
        with pytest.raises(SourceError) as caught:
            await self.fetch(**module)
        return caught.value

    def url(self, path: str = "/x.wasm") -> str:
        return self.server.url + path

    def image(self, digest: str, tag: str = "") -> str:
        return f"{self.server.host}/team/shim{tag}@{digest}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("pki") / "tls")


@asynccontextmanager
async def world(
    tls: Path, folder: Path, respond: Callable[[Request], Answer], allowed: list[Any] = LOOPBACK
) -> AsyncIterator[World]:
    (folder / "tls").symlink_to(tls)
    with serving(respond, tls) as server:
        found = World(folder, server, allowed)
        try:
            yield found
        finally:
            await found.sources.close()
            await found.web.close()


def files(**content: bytes | str) -> Callable[[Request], Answer]:
    """Serve ``/<name>.wasm``; a text is where it was moved to."""

    def respond(request: Request) -> Answer:
        found = content.get(request.path.partition("?")[0].removeprefix("/").removesuffix(".wasm"))
        if isinstance(found, str):
            return Answer(302, headers={"Location": found})
        return Answer(404) if found is None else Answer(body=found)

    return respond


def tar(**content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, body in content.items():
            item = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            item.size = len(body)
            archive.addfile(item, io.BytesIO(body))
    return packed.getvalue()


def sparse(size: int) -> bytes:
    """Return an archive with a file that begins as a module and goes on with nothing, for very long."""
    item = tarfile.TarInfo("module.wasm")
    item.size = 512
    item.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(size)}
    item.pax_headers |= {"GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,512"}
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(item, io.BytesIO(WASM.ljust(512, b"\0")))
    return archived.getvalue()


def packed(**content: bytes) -> bytes:
    return gzip.compress(tar(**content))


async def test_a_module_from_an_address_is_what_its_checksum_says(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert await here.fetch(url=here.url(), sha256=SHA) == WASM
        refused = await here.refusal(url=here.url("/x.wasm?signature=secret"), sha256="0" * 64)
        assert refused.reason is SourceReason.CHECKSUM_MISMATCH
        assert f"should have sha256 {'0' * 64} and has {SHA}" in refused.message
        assert "secret" not in refused.message


@pytest.mark.parametrize(
    "module",
    [{"url": "https://example.com/x.wasm"}, {"path": "x"}, {"oci": {"image": "ghcr.io/team/ttl:1"}}],
    ids=["an address", "a file", "a tag"],
)
async def test_what_nothing_pins_is_not_run(tls: Path, tmp_path: Path, module: dict[str, Any]) -> None:
    async with world(tls, tmp_path, files()) as here:
        assert (await here.refusal(**module)).reason is SourceReason.NOT_PINNED


async def test_the_machine_itself_is_not_asked_unless_that_is_allowed(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM), allowed=[]) as here:
        port = here.server.host.partition(":")[2]
        for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):
            refused = await here.refusal(url=f"https://{host}:{port}/x.wasm", sha256=SHA)
            assert refused.reason is SourceReason.NOT_ALLOWED, host
            assert "TRELLIS_CONTROLLER_SOURCE_NETWORKS" in refused.message
        refused = await here.refusal(oci={"image": here.image(f"sha256:{SHA}")})
        assert refused.reason is SourceReason.NOT_ALLOWED
        assert here.server.requests == []


@pytest.mark.parametrize(
    "target", ["https://169.254.169.254/latest/meta-data", "https://10.96.0.1/", "https://[fe80::1]/"]
)
async def test_a_redirect_leads_nowhere_else(tls: Path, tmp_path: Path, target: str) -> None:
    async with world(tls, tmp_path, files(x=target)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.NOT_ALLOWED


@pytest.mark.parametrize("target", ["http://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1/"])
async def test_a_redirect_does_not_leave_https(tls: Path, tmp_path: Path, target: str) -> None:
    async with world(tls, tmp_path, files(x=target)) as here:
        refused = await here.refusal(url=here.url(), sha256=SHA)
        assert (refused.reason, "is not https" in refused.message) == (SourceReason.NOT_ALLOWED, True)


async def test_redirects_are_followed_and_come_to_an_end(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(a="/b.wasm", b="c.wasm", c=WASM, round="/round.wasm")) as here:
        assert await here.fetch(url=here.url("/a.wasm"), sha256=SHA) == WASM
        refused = await here.refusal(url=here.url("/round.wasm"), sha256=SHA)
        assert "redirects more than 5 times" in refused.message
        assert len(here.server.requests) == 3 + 6


async def test_too_much_is_not_read_whether_it_is_announced_or_not(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = transfers.Transfer.ask
    monkeypatch.setattr(ask, "__kwdefaults__", {"most": len(WASM) - 1})
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.TOO_LARGE


async def test_a_server_nobody_vouches_for_is_not_believed(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        believing = here.web
        here.web = Web(LOOPBACK)
        await believing.close()
        here.sources = Sources(here.kube.acting_as, here.web, here.folder)
        refused = await here.refusal(url=here.url(), sha256=SHA)
        assert refused.reason is SourceReason.UNAVAILABLE
        assert "certificate is not trusted" in refused.message


async def test_what_is_cut_and_what_is_away_is_unavailable(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, lambda _: Answer(body=WASM, cut=10)) as here:
        assert (await here.refusal(url=here.url(), sha256=SHA)).reason is SourceReason.UNAVAILABLE
        gone = here.url()
    (tmp_path / "again").mkdir()
    async with world(tls, tmp_path / "again", files()) as here:
        assert (await here.refusal(url=gone, sha256=SHA)).reason is SourceReason.UNAVAILABLE
        assert (await here.refusal(url=here.url("/no"), sha256=SHA)).reason is SourceReason.NOT_FOUND


async def test_a_module_is_a_blob_of_any_of_its_types(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        for kind in ("application/wasm", "application/vnd.wasm.content.layer.v1+wasm"):
            digest = registry.manifest("1", registry.blob(b"{}", "application/json"), registry.blob(WASM, kind))
            assert await here.fetch(oci={"image": here.image(digest, ":1")}) == WASM
        plain = registry.manifest("2", registry.blob(WASM, "application/octet-stream", "x.wasm"))
        assert await here.fetch(oci={"image": here.image(plain)}) == WASM
        assert await here.fetch(oci={"image": f"{here.server.host}/team/shim:2"}, sha256=SHA) == WASM
        wrong = await here.refusal(oci={"image": here.image(plain)}, sha256="0" * 64)
        assert wrong.reason is SourceReason.CHECKSUM_MISMATCH


async def test_a_module_is_the_only_one_among_the_files_of_an_image(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        below = registry.blob(packed(app__old_dot_wasm=WASM + b"\0", etc__passwd=b"root"), LAYER)
        above = registry.blob(packed(**{"app__.wh.old_dot_wasm": b"", "module_dot_wasm": WASM}), LAYER)
        image = registry.manifest("1", below, above)
        index = registry.index("2", {"wasm": image, "amd64": registry.manifest(None, registry.blob(b"x", LAYER))})
        for digest in (image, index):
            assert await here.fetch(oci={"image": here.image(digest)}) == WASM
        instead = registry.blob(packed(app__old_dot_wasm=b"#!/bin/sh", module_dot_wasm=WASM), LAYER)
        assert await here.fetch(oci={"image": here.image(registry.manifest("4", below, instead))}) == WASM
        alone = registry.manifest("3", registry.blob(tar(module=WASM), "application/vnd.oci.image.layer.v1.tar"))
        assert await here.fetch(oci={"image": here.image(alone)}) == WASM


async def test_an_image_without_one_module_is_named_with_what_it_has(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        two = registry.manifest("1", registry.blob(packed(a_dot_wasm=WASM, b_dot_wasm=WASM), LAYER))
        none = registry.manifest("2", registry.blob(packed(sh=b"#!/bin/sh"), LAYER))
        empty = registry.manifest("3")
        junk = registry.manifest("4", registry.blob(b"\x1f\x8bjunk", LAYER), registry.blob(b"junk", LAYER))
        zstd = registry.manifest("5", registry.blob(b"\x28\xb5\x2f\xfdjunk", LAYER))
        platforms = registry.index("6", {"amd64": two, "arm64": none})
        expected = {
            two: "several modules (/a.wasm, /b.wasm)",
            none: "no module",
            empty: "no module",
            junk: "cannot be unpacked",
            zstd: "packed with zstd",
            platforms: "linux/amd64, linux/arm64: one of them has to be for wasm",
        }
        for digest, words in expected.items():
            refused = await here.refusal(oci={"image": here.image(digest)})
            assert (refused.reason, words in refused.message) == (SourceReason.NO_MODULE, True), refused.message
        many = registry.manifest("8", registry.blob(packed(**{f"m{number}": WASM for number in range(65)}), LAYER))
        assert "more than 64 modules" in (await here.refusal(oci={"image": here.image(many)})).message
        holes = registry.manifest("9", registry.blob(gzip.compress(sparse(2**40)), LAYER))
        assert "no module" in (await here.refusal(oci={"image": here.image(holes)})).message
        monkeypatch.setattr(layers, "MOST_BYTES", 5000)
        bomb = registry.manifest("7", registry.blob(packed(a=b"\0" * 100_000), LAYER))
        assert "unpacks to more than" in (await here.refusal(oci={"image": here.image(bomb)})).message


async def test_what_a_registry_gives_by_digest_has_that_digest(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
        kind, body = registry.documents[digest]
        registry.documents[digest] = (kind, body + b" ")
        manifest = await here.refusal(oci={"image": here.image(digest)})
        registry.documents[digest] = (kind, body)
        registry.blobs[f"sha256:{SHA}"] = WASM + b"\0"
        blob = await here.refusal(oci={"image": here.image(digest)})
        for refused, what in ((manifest, "manifest"), (blob, "blob")):
            assert refused.reason is SourceReason.CHECKSUM_MISMATCH
            assert f"the {what} should have" in refused.message
        missing = await here.refusal(oci={"image": here.image(f"sha256:{'0' * 64}")})
        assert missing.reason is SourceReason.NOT_FOUND


async def test_a_blob_that_claims_to_be_too_large_is_not_asked_for(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        claimed = registry.blob(WASM, "application/wasm") | {"size": source_errors.MOST_BYTES + 1}
        refused = await here.refusal(oci={"image": here.image(registry.manifest("1", claimed))})
        assert refused.reason is SourceReason.TOO_LARGE
        assert not [request for request in here.server.requests if "blobs" in request.path]


@pytest.mark.parametrize("place", ["", "/team", "/team/shim"])
async def test_a_private_registry_gets_the_credentials_of_its_secret(tls: Path, tmp_path: Path, place: str) -> None:
    registry = Registry(login=LOGIN)
    async with world(tls, tmp_path, registry.respond) as here:
        registry.url = here.server.url
        digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
        auth = base64.b64encode(LOGIN.encode()).decode()
        wrong = {"username": "me", "password": "no"}
        auths = {"other.example": wrong, f"https://{here.server.host}{place}": {"auth": auth}, "127.0.0.1": wrong}
        put_secret(here, json.dumps({"auths": auths}))
        module = {"image": here.image(digest), "pullSecret": {"name": "registry"}}
        assert await here.fetch(oci=module) == WASM
        reads = [request for request in here.kube.api.requests if "secrets" in request.path]
        assert [request.headers["Impersonate-User"] for request in reads] == [USER]


async def test_credentials_that_are_missing_wrong_or_unreadable_are_said_and_not_shown(
    tls: Path, tmp_path: Path
) -> None:
    registry = Registry(login=LOGIN)
    async with world(tls, tmp_path, registry.respond) as here:
        registry.url = here.server.url
        digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
        module = {"image": here.image(digest)}
        assert "wants a pullSecret" in (await here.refusal(oci=module)).message
        module["pullSecret"] = {"name": "registry"}  # type: ignore[assignment]
        assert "Secret registry in namespace team does not exist" in (await here.refusal(oci=module)).message
        entry = {"username": "me", "password": "hunter3"}
        for config, words in {
            json.dumps({"auths": {"other.example": entry}}): f"has nothing for {here.server.host}",
            json.dumps({"auths": {here.server.host: {"auth": "%%%"}}}): "is no Docker configuration",
            "hunter3": "is no Docker configuration",
            json.dumps({"auths": {here.server.host: entry}}): "refuses the credentials of pullSecret (401)",
        }.items():
            put_secret(here, config)
            refused = await here.refusal(oci=module)
            assert (refused.reason, words in refused.message) == (SourceReason.FORBIDDEN, True), refused.message
            assert "hunter3" not in str(refused)


def put_secret(here: World, config: str) -> None:
    data = {".dockerconfigjson": base64.b64encode(config.encode()).decode()}
    here.kube.put(SECRETS, {"metadata": {"name": "registry", "namespace": "team"}, "data": data})


async def test_credentials_do_not_follow_a_redirect_to_another_host(tls: Path, tmp_path: Path) -> None:
    """Blobs of registries lie in stores of others, which signed addresses lead to."""
    registry = Registry(login=LOGIN)
    (tmp_path / "store").mkdir()
    async with world(tls, tmp_path / "store", lambda _: Answer(body=WASM)) as store:

        def respond(request: Request) -> Answer:
            answer = registry.respond(request)
            moved = "/blobs/" in request.path and answer.status == 200
            return Answer(307, headers={"Location": store.url("/blob?signed")}) if moved else answer

        async with world(tls, tmp_path, respond) as here:
            registry.url = here.server.url
            digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
            put_secret(here, json.dumps({"auths": {here.server.host: {"username": "me", "password": "hunter2"}}}))
            module = {"image": here.image(digest), "pullSecret": {"name": "registry"}}
            assert await here.fetch(oci=module) == WASM
            assert "authorization" in here.server.requests[-1].headers
            assert "authorization" not in store.server.requests[-1].headers


async def test_a_module_in_a_config_map_is_read_as_the_account(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        binary = {"module.wasm": base64.b64encode(WASM).decode()}
        here.kube.put(CONFIGMAPS, configmap("team", "ttl", text="hello") | {"binaryData": binary})
        assert await here.fetch(configMap={"name": "ttl", "key": "module.wasm"}) == WASM
        assert here.kube.api.requests[-1].headers["Impersonate-User"] == USER
        assert await here.fetch(configMap={"name": "ttl", "key": "module.wasm"}, sha256=SHA) == WASM
        for module, words in {
            ("ttl", "text"): "as text, in data: it has to be in binaryData",
            ("ttl", "none"): "ConfigMap ttl in namespace team has no none in its binaryData",
            ("gone", "x"): "ConfigMap gone in namespace team does not exist",
        }.items():
            refused = await here.refusal(configMap={"name": module[0], "key": module[1]})
            assert (refused.reason, words in refused.message) == (SourceReason.NOT_FOUND, True), refused.message
        wrong = await here.refusal(configMap={"name": "ttl", "key": "module.wasm"}, sha256="0" * 64)
        assert wrong.reason is SourceReason.CHECKSUM_MISMATCH


async def test_what_the_account_may_not_read_is_forbidden_and_an_outage_is_not(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        for words, advice in {
            f'User "{USER}" cannot get resource "configmaps" in API group "" in the namespace "team"': (
                f"{USER} may not get configmaps in namespace team"
            ),
            'User "system:serviceaccount:t:host" cannot impersonate resource "serviceaccounts" in API group "" in the '
            'namespace "team"': "`trellis controllers roles -n team -a ttl | kubectl apply -f -`",
            'User "system:serviceaccount:t:host" cannot impersonate-on:serviceaccount:get resource "configmaps" in API '
            'group "" in the namespace "team"': "`trellis controllers roles -n team -a ttl | kubectl apply -f -`",
            "exceeded quota": "exceeded quota",
        }.items():
            here.kube.answer_next(1, lambda _, words=words: status_reply(403, "Forbidden", words))  # type: ignore[misc]
            refused = await here.refusal(configMap={"name": "ttl", "key": "x"})
            assert refused.reason is SourceReason.FORBIDDEN
            assert "cannot get ConfigMap ttl in namespace team: " in refused.message
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
        assert "volume team/other is not mounted" in unmounted.message
        here.sources = Sources(here.kube.acting_as, here.web, None)
        assert "TRELLIS_CONTROLLER_MODULES_DIR" in (await here.refusal(path="x", sha256=SHA)).message


class Busy(Web):
    """Counts requests that are under way; what ends with ``held`` waits until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.let = asyncio.Event()

    async def get(self, url: str, *_: Any, **__: Any) -> web.Answer:
        whose = url.rpartition("/")[2]
        for one in (whose, ""):
            self.busy[one] += 1
            self.most[one] = max(self.most[one], self.busy[one])
        try:
            await (self.let.wait() if whose.endswith("held") else asyncio.sleep(0.005))
        finally:
            self.busy.subtract((whose, ""))
        return web.Answer(200, {}, WASM)


async def test_a_namespace_fetches_no_more_at_a_time_than_its_share_and_all_no_more_than_there_is() -> None:
    web_ = Busy()
    here = Sources(FakeKube().acting_as, web_, None)

    async def fetch(namespace: str) -> bytes:
        module = Module.model_validate({"url": f"https://example.com/{namespace}", "sha256": SHA})
        async with here.turn(Asked(namespace, module, USER)) as one:
            return await one.module()

    held = [asyncio.create_task(fetch("held")) for _ in range(20)]
    async with asyncio.timeout(10):
        await asyncio.gather(*(fetch(f"team-{number % 8}") for number in range(80)))
    assert web_.most["held"] == web_.busy["held"] == transfers.EACH
    assert web_.most["team-1"] <= transfers.EACH
    assert web_.most[""] == transfers.AT_ONCE
    web_.let.set()
    assert await asyncio.gather(*held) == [WASM] * 20
    await here.close()


async def test_who_is_cancelled_while_it_waits_leaves_the_share_to_the_others() -> None:
    web_ = Busy()
    here = Sources(FakeKube().acting_as, web_, None)

    async def fetch(name: str) -> bytes:
        module = Module.model_validate({"url": f"https://example.com/{name}", "sha256": SHA})
        async with here.turn(Asked("team", module, USER)) as one:
            return await one.module()

    held = [asyncio.create_task(fetch("held")) for _ in range(2 * transfers.EACH)]
    await asyncio.sleep(0.01)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    async with asyncio.timeout(5):
        assert await fetch("good") == WASM
    await here.close()


@pytest.mark.parametrize(
    "tarpit",
    [
        lambda held: held.wait() and Answer(404),
        lambda held: Answer(body=WASM, cut=10, held=held),
        lambda held: held.wait(0.15) or Answer(302, headers={"Location": "/next"}),
    ],
    ids=["says nothing", "begins and goes on very slowly", "sends from one slow address to the next"],
)
async def test_a_fetch_ends_in_time_whatever_the_server_does(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tarpit: Callable[[threading.Event], Answer]
) -> None:
    monkeypatch.setattr(transfers, "PATIENCE_SECONDS", 0.4)
    held = threading.Event()
    async with world(tls, tmp_path, lambda _: tarpit(held)) as here:
        try:
            async with asyncio.timeout(10):
                refusal = await here.refusal(url=here.url(), sha256=SHA)
            assert refusal.reason is SourceReason.UNAVAILABLE
            assert "too slow" in refusal.message
            assert here.url() in refusal.message
        finally:
            held.set()


async def test_a_server_that_does_not_end_tls_keeps_no_connection(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PATIENCE_SECONDS", 0.3)
    held = threading.Event()

    def connected() -> list[Any]:
        mine = psutil.Process().net_connections(kind="tcp")
        return [one for one in mine if one.raddr and one.raddr.port == URL(here.url()).port]

    async with world(tls, tmp_path, lambda _: held.wait() and Answer(404)) as here:
        try:
            await here.refusal(url=here.url(), sha256=SHA)
            await here.web.close()
            async with asyncio.timeout(10):
                while connected():  # noqa: ASYNC110 - of the kernel
                    await asyncio.sleep(0.01)
        finally:
            held.set()


async def test_what_comes_fast_enough_has_more_time(tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(transfers, "LEAST_SPEED", 10)
    held = threading.Event()
    asyncio.get_running_loop().call_later(0.5, held.set)
    async with world(tls, tmp_path, lambda _: Answer(body=WASM, cut=100, held=held)) as here:
        assert await here.fetch(url=here.url(), sha256=SHA) == WASM


async def test_names_that_nobody_answers_hold_up_no_other_name_and_no_file(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PATIENCE_SECONDS", 5.0)
    resolve, let, asked = socket.getaddrinfo, threading.Event(), threading.Semaphore(0)

    def slow(host: str, *arguments: Any, **more: Any) -> Any:
        if host == "tarpit.example":
            asked.release()
            let.wait()
        return resolve("127.0.0.1", *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with world(tls, tmp_path, files(x=WASM)) as here:
        module = Module.model_validate({"url": "https://tarpit.example/x.wasm", "sha256": SHA})

        async def fetch(namespace: str) -> None:
            async with here.sources.turn(Asked(namespace, module, USER)) as one:
                await one.module()

        names = [f"team-{number}" for number in range(transfers.AT_ONCE // transfers.EACH - 1)]
        held = [asyncio.create_task(fetch(name)) for name in names * transfers.EACH]
        try:
            async with asyncio.timeout(10):
                for _ in held:
                    while not asked.acquire(blocking=False):  # noqa: ASYNC110 - of a thread
                        await asyncio.sleep(0.005)
                port = here.server.host.rpartition(":")[2]
                refusal = await here.refusal(url=f"https://good.example:{port}/x.wasm", sha256=SHA)
                assert "not trusted" in refusal.message, "it got as far as the server, whose certificate is for another"
                (here.folder / "x.wasm").write_bytes(WASM)
                assert await here.fetch(path="x.wasm", sha256=SHA) == WASM
        finally:
            let.set()
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)


async def test_few_have_much_in_memory_and_who_waits_for_that_loses_no_time(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LARGE_BYTES", len(WASM) - 1)
    monkeypatch.setattr(transfers, "PATIENCE_SECONDS", 0.3)
    async with world(tls, tmp_path, files(x=WASM)) as here:
        asked = Asked("team", Module.model_validate({"url": here.url(), "sha256": SHA}), USER)
        async with here.sources.turn(asked) as first:
            assert await first.module() == WASM
            second = asyncio.create_task(here.fetch(url=here.url(), sha256=SHA))
            await asyncio.sleep(0.6)
            assert not second.done(), "another of its namespace has much in memory"
            other = Asked("other", asked.module, USER)
            async with here.sources.turn(other) as third:
                assert await third.module() == WASM
        assert await second == WASM


async def test_a_registry_is_asked_whether_it_lets_who_asks_and_nothing_is_fetched(tls: Path, tmp_path: Path) -> None:
    registry = Registry(login=LOGIN)
    digest = registry.manifest(None, registry.blob(WASM, "application/wasm"))
    async with world(tls, tmp_path, registry.respond) as here:
        registry.url = here.server.url
        auth = base64.b64encode(LOGIN.encode()).decode()
        for name, entry in (("pull", {"auth": auth}), ("wrong", {"username": "me", "password": "guess"})):
            config = json.dumps({"auths": {here.server.host: entry}}).encode()
            data = {".dockerconfigjson": base64.b64encode(config).decode()}
            here.kube.put(SECRETS, {"metadata": {"namespace": "team", "name": name}, "data": data})
        image = here.image(digest)
        assert await here.confirm(oci={"image": image, "pullSecret": {"name": "pull"}})
        assert {one.method for one in here.server.requests if "/manifests/" in one.path} == {"HEAD"}
        assert not [one for one in here.server.requests if "/blobs/" in one.path]
        for pull_secret in ({}, {"pullSecret": {"name": "wrong"}}):
            with pytest.raises(SourceError) as caught:
                await here.confirm(oci={"image": image, **pull_secret})
            assert caught.value.reason is SourceReason.FORBIDDEN


async def test_what_only_fetching_can_tell_is_fetched(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files(x=WASM)) as here:
        assert not await here.confirm(configMap={"name": "m", "key": "k"}, sha256=SHA)
        assert not await here.confirm(pvc={"claimName": "c", "path": "p"}, sha256=SHA)
        assert await here.confirm(url=here.url(), sha256=SHA)
        assert await here.confirm(path="x.wasm", sha256=SHA)
        assert not here.server.requests


async def test_a_pipe_on_a_volume_holds_up_nobody(tls: Path, tmp_path: Path) -> None:
    async with world(tls, tmp_path, files()) as here:
        os.mkfifo(here.folder / "pipe")
        async with asyncio.timeout(5):
            assert "is no file" in (await here.refusal(path="pipe", sha256=SHA)).message

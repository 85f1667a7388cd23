"""Modules from registries with authentication, and the receivers of the credentials."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from support.guests.module_sources import LOGIN, USER, WASM, World, world
from support.suite.naming import lacking
from trellis.kube.resources import SECRETS
from trellis.registries.domain.errors import SourceError, SourceReason
from unit.node_installer.servers import Answer, Registry, Request


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


async def test_credentials_that_are_missing_wrong_or_unreadable_are_reported_and_not_shown(
    tls: Path, tmp_path: Path
) -> None:
    registry = Registry(login=LOGIN)
    async with world(tls, tmp_path, registry.respond) as here:
        registry.url = here.server.url
        digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
        module = {"image": here.image(digest)}
        assert lacking((await here.refusal(oci=module)).message, "pullSecret") == []
        module["pullSecret"] = {"name": "registry"}  # type: ignore[assignment]
        assert lacking((await here.refusal(oci=module)).message, "Secret registry", "namespace team") == []
        entry = {"username": "me", "password": "hunter3"}
        for config, expected_text in {
            json.dumps({"auths": {"other.example": entry}}): here.server.host,
            json.dumps({"auths": {here.server.host: {"auth": "%%%"}}}): "Docker configuration",
            "hunter3": "Docker configuration",
            json.dumps({"auths": {here.server.host: entry}}): "pullSecret (401)",
        }.items():
            put_secret(here, config)
            refused = await here.refusal(oci=module)
            assert (refused.reason, expected_text in refused.message) == (SourceReason.FORBIDDEN, True), refused.message
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


async def test_the_registry_checks_access_of_the_requester_without_a_fetch(tls: Path, tmp_path: Path) -> None:
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
        assert {request.method for request in here.server.requests if "/manifests/" in request.path} == {"HEAD"}
        assert not [request for request in here.server.requests if "/blobs/" in request.path]
        for pull_secret in ({}, {"pullSecret": {"name": "wrong"}}):
            with pytest.raises(SourceError) as caught:
                await here.confirm(oci={"image": image, **pull_secret})
            assert caught.value.reason is SourceReason.FORBIDDEN

"""Files of the page: content, caching, and the response if the page is not built."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from console.app import make_application
from console.http.assets import Assets
from console.http.routes import Routes
from support.console.viewers import Users, console
from trellis.telemetry import setup

SCRIPT = "assets/page-0123456789ab.js"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with console(Users()) as world:
        del world
        (tmp_path / "assets").mkdir()
        (tmp_path / "index.html").write_text("<!doctype html>")
        (tmp_path / SCRIPT).write_text("1")
        async with TestClient(TestServer(application(Assets(tmp_path)))) as client:
            yield client


def application(assets: Assets) -> object:
    telemetry = setup("console")
    routes = Routes(None, None, None, None, None, telemetry)  # type: ignore[arg-type]
    return make_application(routes, telemetry, assets)


@pytest.mark.parametrize("path", ["/", "/map", "/events?object=node/n1.example"])
async def test_every_address_without_a_dot_is_the_page(served: TestClient, path: str) -> None:  # type: ignore[type-arg]
    async with served.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, "<!doctype html>")
        assert answer.headers["Cache-Control"] == "no-store"


async def test_a_file_with_a_digest_in_its_name_may_be_cached(served: TestClient) -> None:  # type: ignore[type-arg]
    async with served.get(f"/{SCRIPT}") as answer:
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]


async def test_a_file_of_another_build_is_not_there(served: TestClient) -> None:  # type: ignore[type-arg]
    async with served.get("/assets/page-ba9876543210.js") as answer:
        assert answer.status == 404


async def test_a_console_without_a_page_names_the_build_command(tmp_path: Path) -> None:
    async with TestClient(TestServer(application(Assets(tmp_path)))) as client:  # type: ignore[arg-type]
        for path in ("/", "/map"):
            async with client.get(path) as answer:
                assert answer.status == 503
                assert "trellis dev page" in (await answer.json())["error"]["do"]

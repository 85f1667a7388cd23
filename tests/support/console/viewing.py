"""A console in front of a real API server, and accounts with real tokens."""

from __future__ import annotations

import asyncio
import http
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from console.app import Console, create_app
from console.settings import Settings
from console.timings import Timings
from support.cluster.grants import until_bound
from support.console.viewers import Message, Page, messages
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

SECONDS = 40.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"


@dataclass
class Accounts:
    """ServiceAccounts of one namespace; ``leave`` deletes their permissions."""

    api: Api
    namespace: str
    made: list[str] = field(default_factory=list)

    def create(self, name: str) -> str:
        """Create an account, and return a token."""
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self._call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", body)
        return self.token(name)

    def token(self, name: str) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        return str(self._call("POST", path, body)["status"]["token"])

    def delete(self, name: str) -> None:
        """Delete an account, which invalidates its tokens."""
        self._call("DELETE", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}")

    def allow(self, name: str, rules: list[dict[str, Any]], *, namespace: str = "") -> Callable[[], None]:
        """Grant permissions in a namespace or in the cluster; return a function that revokes them."""
        return self._allow({"kind": "ServiceAccount", "name": name, "namespace": self.namespace}, rules, namespace)

    def allow_user(self, user: str, rules: list[dict[str, Any]]) -> None:
        """Grant permissions in the cluster to a user that a proxy names."""
        self._allow({"kind": "User", "apiGroup": _GROUP, "name": user}, rules)

    def _allow(self, subject: dict[str, str], rules: list[dict[str, Any]], namespace: str = "") -> Callable[[], None]:
        unique = f"viewing-{secrets.token_hex(4)}"
        kind, place = ("Role", f"{_RBAC}/namespaces/{namespace}") if namespace else ("ClusterRole", _RBAC)
        plural = kind.lower() + "s"
        role = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": unique}, "rules": rules}
        binding = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": unique} | ({"namespace": namespace} if namespace else {}),
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": unique},
            "subjects": [subject],
        }
        bindings = f"{kind.lower()}bindings"
        self._call("POST", f"{place}/{plural}", role)
        self._call("POST", f"{place}/{bindings}", binding)
        self.made += [f"{place}/{bindings}/{unique}", f"{place}/{plural}/{unique}"]
        until_bound(self.api, binding)
        return lambda: self.api.call("DELETE", f"{place}/{bindings}/{unique}") and None

    def leave(self) -> None:
        for path in self.made:
            self.api.call("DELETE", path)

    def _call(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, answer = self.api.call(verb, path, body)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED}, (path, answer)
        return answer


def rule(groups: str, resources: str, verbs: str = "get,list,watch", name: str = "") -> dict[str, Any]:
    named = {"resourceNames": [name]} if name else {}
    return {"apiGroups": groups.split(","), "resources": resources.split(","), "verbs": verbs.split(",")} | named


READ_ALL = [rule("*", "*")]


@dataclass
class Tab:
    """One open page."""

    page: Page
    messages: AsyncIterator[Message]

    async def until(self, holds: Callable[[Page], object], seconds: float = SECONDS) -> Page:
        async with asyncio.timeout(seconds):
            while not holds(self.page):
                self.page.take(await anext(self.messages))
        return self.page


@dataclass
class RunningConsole:
    """A running console at ``url``."""

    console: Console
    url: str
    stop: Callable[[], Awaitable[None]]
    """Ends it before the end of the block."""

    @asynccontextmanager
    async def browser(self, token: str) -> AsyncIterator[aiohttp.ClientSession]:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(base_url=self.url, cookie_jar=jar) as session:
            async with session.post("/api/session", json={"token": token}, headers={"Origin": self.url}) as answer:
                assert answer.status == http.HTTPStatus.NO_CONTENT, f"{answer.status} {await answer.text()}"
            yield session


@asynccontextmanager
async def tab(browser: aiohttp.ClientSession, query: str = "", **headers: str) -> AsyncIterator[Tab]:
    async with browser.get(f"/api/stream{query}", headers=headers) as response:
        assert response.status == http.HTTPStatus.OK, await response.text()
        yield Tab(Page(), messages(response))


@asynccontextmanager
async def run_console(
    cluster: ClusterInfo,
    /,
    *,
    timings: Timings = Timings(),  # noqa: B008 - frozen
    **settings: Any,
) -> AsyncIterator[RunningConsole]:
    """Run a console in front of a cluster, on a free port of the loopback."""
    given = {"kubeconfig": Path(cluster.kubeconfig), "console_port": 0, "console_address": "127.0.0.1"} | settings
    console, stop = create_app(Settings(**given), timings=timings), asyncio.Event()
    running = asyncio.create_task(console.run(stop))

    async def end() -> None:
        stop.set()
        await running

    try:
        async with asyncio.timeout(SECONDS):
            while not console.port:
                if running.done():
                    running.result()
                await asyncio.sleep(0.01)
        yield RunningConsole(console, f"http://127.0.0.1:{console.port}", end)
    finally:
        await end()

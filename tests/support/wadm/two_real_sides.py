"""Fifty applications, which users change with kubectl and with wash while every server is killed.

The expected end of a period comes from the requests of users alone. One side asked: it is exactly that. Both did: it is
something that one of them asked for. No side did: nothing changed. Lost storage may revert the last requests of wash,
and nothing else.
"""

from __future__ import annotations

import asyncio
import http
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import nats.errors
import pytest

from application_manager.domain.sides import OVERRIDDEN
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.wadm.application_world import KUBECTL, ApplicationWorld
from trellis import names
from trellis.kube.resources import APPLICATIONS
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
State = tuple[str, bool] | None
"""Which image, and whether it is to run; None: there is no such application."""
PATIENCE = 240.0
WORKERS = 8


def spec(image: str) -> Manifest:
    return {"components": [wasm_component("echo", f"file:///{image}.wasm")]}


def image_of(manifest: Manifest) -> str:
    image = str(manifest["spec"]["components"][0]["properties"]["image"])
    return image.removeprefix("file:///").removesuffix(".wasm")


@dataclass
class SideRequests:
    """The requests of one side during one time, in order. ``put``: an image that it stores and does not run."""

    requests: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    wanted: State = None
    stops: bool = False
    deletes: bool = False
    put: str = ""


@dataclass
class One:
    """One application. ``annotated``: its object requests that it does not run."""

    name: str
    state: State = None
    annotated: bool = False
    kubectl: SideRequests | None = None
    wash: SideRequests | None = None

    def allowed(self, found: State, *, lost: bool) -> bool:
        """Return whether this state is permitted at the end of a period; ``lost``: wadm's storage was lost in it."""
        requested = [item for item in (self.kubectl, self.wash) if item is not None]
        if not requested:
            return found == self.state
        if len(requested) == 1 and not (lost and self.wash):
            return found == requested[0].wanted
        if found is None:
            return any(item.deletes for item in requested) or (self.state is None and self.kubectl is None)
        images = {item[0] for item in (self.state, *(each.wanted for each in requested)) if item is not None}
        images |= {item.put for item in requested if item.put}
        was_stopped = self.state is not None and not self.state[1]
        stopped = any(item.stops for item in requested) or was_stopped or (lost and self.wash is not None)
        return found[0] in images and (found[1] or stopped)


class TwoRealSides:
    """Both sides as users see them, and their requests; every request is repeated until it is accepted."""

    def __init__(self, apps: ApplicationWorld, wadm: Wadm, rng: random.Random, count: int) -> None:
        self._apps = apps
        self._wadm = wadm
        self._rng = rng
        self.all = [One(f"app-{number:02}") for number in range(count)]
        self.loses_storage = False
        """Whether wadm's storage is lost during this time, between a put and its deploy, say."""

    # Requests of users.

    def plan(self, time_: int, sides: Callable[[One], str]) -> None:
        """Draw requests of users for each application; ``sides``: "", "kubectl", "wash" or "both"."""
        for item in self.all:
            side = sides(item)
            item.kubectl = self._with_kubectl(item, f"k{time_}-{item.name}") if side in {"kubectl", "both"} else None
            item.wash = self._with_wash(item, f"w{time_}-{item.name}") if side in {"wash", "both"} else None

    async def act(self, fault: Callable[[int, int], Awaitable[None]]) -> None:
        """Carry out all requests, some at once; ``fault`` gets how many of how many are done."""
        acting = [
            side_requests
            for item in self.all
            for side_requests in (item.kubectl, item.wash)
            if side_requests is not None
        ]
        self._rng.shuffle(acting)
        left, done = iter(acting), 0

        async def work() -> None:
            nonlocal done
            for side_requests in left:
                for wanted in side_requests.requests:
                    await wanted()
                done += 1
                await fault(done, len(acting))

        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work())

    def _with_kubectl(self, one: One, image: str) -> SideRequests:
        choice = "apply" if one.state is None else self._rng.choice(["apply", "apply", "mark", "delete"])
        if choice == "apply":
            return SideRequests([lambda: self._apply(one.name, image)], (image, not one.annotated), stops=one.annotated)
        assert one.state is not None
        if choice == "mark":
            one.annotated = annotated = not one.annotated
            wanted = [lambda: self._mark(one.name, annotated)]
            return SideRequests(wanted, (one.state[0], not annotated), stops=annotated)
        one.annotated = False
        return SideRequests([lambda: self._kube("DELETE", one.name)], None, stops=True, deletes=True)

    def _with_wash(self, one: One, image: str) -> SideRequests:
        put, deploy = (lambda: self._put(one.name, image)), (lambda: self._deploy(one.name, image))
        if one.state is None:
            runs = self._rng.random() < 0.8
            return SideRequests([put, deploy] if runs else [put], (image, runs), stops=not runs)
        choice = self._rng.choice(["deploy", "deploy", "undeploy", "delete", "put"])
        if choice == "undeploy":
            return SideRequests(
                [lambda: self._ask(lambda: self._wadm.undeploy(one.name))], (one.state[0], False), stops=True
            )
        if choice == "delete":
            one.annotated = False
            return SideRequests(
                [lambda: self._ask(lambda: self._wadm.delete(one.name))], None, stops=True, deletes=True
            )
        if choice == "put" and one.state[1]:
            return SideRequests([put], one.state, put=image)
        return SideRequests([put, deploy], (image, True))

    async def _apply(self, name: str, image: str) -> None:
        if await self._kube("PATCH", name, {"spec": spec(image)}) == http.HTTPStatus.NOT_FOUND:
            kind = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind}
            made = await self._kube("POST", "", kind | {"metadata": {"name": name}, "spec": spec(image)})
            if made == http.HTTPStatus.CONFLICT:
                await self._apply(name, image)

    async def _mark(self, name: str, undeploy: bool) -> None:
        value = "true" if undeploy else None
        await self._kube("PATCH", name, {"metadata": {"annotations": {names.ANNOTATION_UNDEPLOY: value}}})

    async def _kube(self, method: str, name: str, body: Manifest | None = None) -> int:
        path = APPLICATIONS.path(self._apps.namespace, name or None) + KUBECTL
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                status, answer = await asyncio.to_thread(self._call, method, path, body)
            except (OSError, http.client.HTTPException):
                status, answer = 0, {}
            if status and status < http.HTTPStatus.INTERNAL_SERVER_ERROR and status not in {401, 403, 429}:
                assert status in {200, 201, 404, 409}, answer
                return status
            assert time.monotonic() < deadline, f"{method} {path}: {answer}"
            await asyncio.sleep(0.2)

    def _call(self, method: str, path: str, body: Manifest | None) -> tuple[int, Any]:
        api = Api.of_kubeconfig(self._apps.hosts.fleet.settings()["kubeconfig"])
        try:
            return api.call(method, path, body)
        finally:
            api.close()

    async def _put(self, name: str, image: str) -> None:
        manifest = application(name, wasm_component("echo", f"file:///{image}.wasm"), version=image)
        await self._ask(lambda: self._wadm.put(manifest))

    async def _deploy(self, name: str, image: str) -> None:
        await self._ask(lambda: self._wadm.deploy(name, image))

    async def _ask(self, ask: Callable[[], Awaitable[Manifest]]) -> None:
        """Ask wadm until it answers; what is there already, or was lost meanwhile, is an answer too."""
        deadline, answer = time.monotonic() + PATIENCE, {}
        while True:
            try:
                async with asyncio.timeout(3):
                    answer = await ask()
            except (TimeoutError, nats.errors.Error):
                answer = {"result": "error", "message": "no answer"}
            if answer["result"] != "error" or "already exists" in answer["message"]:
                return
            if self.loses_storage and "does not have a version" in answer["message"]:
                return
            assert time.monotonic() < deadline, answer
            await asyncio.sleep(0.2)

    # What is there.

    async def settled(self, what: str) -> dict[str, State]:
        """Wait until both sides are equal in everything; return what they have."""
        deadline = time.monotonic() + PATIENCE
        while True:
            differ, states = await self._compare()
            if not differ:
                return states
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: the sides differ after {PATIENCE:.0f} s:\n" + "\n".join(differ))
            await asyncio.sleep(0.5)

    async def _compare(self) -> tuple[list[str], dict[str, State]]:
        listed = await asyncio.to_thread(self._call, "GET", APPLICATIONS.path(self._apps.namespace), None)
        objects = {item["metadata"]["name"]: item for item in listed[1]["items"]}
        models = {item["name"]: item for item in (await self._wadm._ask("get", None))["models"]}
        differ, states = [], {}
        for item in self.all:
            found, model = objects.get(item.name), models.get(item.name)
            if found is None and model is None:
                states[item.name] = None
            elif found is None or model is None or found["metadata"].get("deletionTimestamp"):
                differ.append(f"{item.name}: Kubernetes {found and found['metadata']}, wadm {model}")
            else:
                here, there = self._here(found), await self._there(found, model)
                states[item.name] = here
                if here != there or not self._knows_newest(found, model):
                    differ.append(f"{item.name}: {here} and {there}: {found.get('status')}, {model}")
        return differ, states

    def _here(self, found: Manifest) -> State:
        base = (found.get("status") or {}).get("synced") or {}
        return image_of(found), bool(base.get("deployed"))

    def _knows_newest(self, found: Manifest, model: Manifest) -> bool:
        """Say whether the object names the newest version in wadm.

        For ten seconds it does not, and an undeploy then shows a version that was put a moment before (ADR 81).
        """
        base = (found.get("status") or {}).get("synced") or {}
        newest = str(model["version"])
        return newest.startswith(OVERRIDDEN) or base.get("newestVersion") == newest

    async def _there(self, found: Manifest, model: Manifest) -> State:
        base = (found.get("status") or {}).get("synced") or {}
        shown = model.get("deployed_version") or base.get("wadmVersion")
        answer = await self._wadm._ask(f"get.{found['metadata']['name']}", {"version": shown})
        manifest = answer.get("manifest")
        return (image_of(manifest), bool(model.get("deployed_version"))) if manifest else None

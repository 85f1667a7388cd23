"""A wadm for one lattice on a real nats-server: it keeps, answers and says what wadm 0.21 does, and runs nothing.

It writes its bucket in wadm's order: to put, the application and then the list; to delete, the list and then the purge.
``tests/support/wadm/store_behaviour.py`` holds it and the real one to the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig
from nats.js.errors import BucketNotFoundError, KeyDeletedError, KeyNotFoundError
from nats.js.kv import KeyValue

from support.nats.reconnecting import left, reconnecting
from support.suite.settling import settle

BUCKET = "wadm_manifests"
Reply = dict[str, Any]
_NO_STATUS = {"status": {"type": "waiting", "message": "Waiting for status: Lattice contains no hosts"}, "scalers": []}
Answer = Callable[[str, Any], Coroutine[Any, Any, Any]]


@dataclass
class WadmStandIn:
    """A context manager. ``requested``: verbs of requests; ``options``: of its connection, such as a user.

    ``account``: the tenant whose lattice it is, for one that serves several; ``refusals``: what it answers instead, by
    verb and application, without doing anything. ``unlisted``: applications whose next write does not reach the list,
    as after three conflicts with other writes, or when wadm is killed in between.
    """

    url: str
    lattice: str
    options: dict[str, Any] = field(default_factory=dict)
    account: str = ""
    requested: list[str] = field(default_factory=list)
    statuses: dict[str, Reply] = field(default_factory=dict)
    refusals: dict[tuple[str, str], Reply] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    _serving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _lost: bool = False

    async def __aenter__(self) -> Self:
        self.client = await reconnecting(self.url, **self.options)
        self._jetstream: JetStreamContext = self.client.jetstream(timeout=2)
        await self.make_bucket()
        verbs: dict[str, Answer] = {
            "put": self._put, "deploy.*": self._deploy, "undeploy.*": self._undeploy, "del.*": self._delete,
            "get.*": self._get, "get": self._models, "list": self._list, "versions.*": self._versions,
            "status.*": self._status,
        }  # fmt: skip
        for verb, answer in verbs.items():
            await self.client.subscribe(f"{self._before}wadm.api.{self.lattice}.model.{verb}", cb=self._served(answer))
        await settle(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await left(self.client)

    @property
    def key(self) -> str:
        """The key of the lattice's list of names."""
        return f"{self.account}-{self.lattice}" if self.account else self.lattice

    @property
    def _before(self) -> str:
        return f"{self.account}." if self.account else ""

    async def make_bucket(self) -> None:
        """Make the bucket if there is none, as wadm does when it starts."""
        self._lost = False
        try:
            self.kv: KeyValue = await self._jetstream.key_value(BUCKET)
        except BucketNotFoundError:
            self.kv = await self._jetstream.create_key_value(KeyValueConfig(bucket=BUCKET, history=1))

    async def lose_bucket(self) -> None:
        """Delete the bucket with all that is in it: from then on wadm's answers are errors."""
        self._lost = True
        await self._jetstream.delete_key_value(BUCKET)

    async def publish(self, name: str, kind: str, message: str = "", scaler: Mapping[str, str] | None = None) -> None:
        """Say a status, and answer with it from now on."""
        info = {"type": kind, "message": message}
        scalers = [] if scaler is None else [{**scaler, "status": info}]
        self.statuses[name] = {"status": info, "scalers": scalers}
        await self.client.publish(f"wadm.status.{self.lattice}.{name}", json.dumps(self.statuses[name]).encode())
        await settle(self.client)

    @contextlib.asynccontextmanager
    async def thinking(self) -> AsyncIterator[None]:
        """Do nothing of what is asked for the time of a block, and all of it afterwards."""
        async with self._serving:
            yield

    def _served(
        self, answer: Callable[[str, Any], Coroutine[Any, Any, Any]]
    ) -> Callable[[Msg], Coroutine[Any, Any, None]]:
        async def serve(message: Msg) -> None:
            tokens = message.subject.removeprefix(self._before).split(".")
            self.requested.append(tokens[4])
            async with self._serving:
                try:
                    data = message.data
                    if (message.headers or {}).get("Content-Type") != "application/json":
                        data = data.replace("\x85".encode(), b" ")  # read as YAML, where it is a line break
                    body = json.loads(data) if data else {}
                    reply = {"result": "error", "message": "Internal storage error"}
                    if not self._lost:
                        name = body["metadata"]["name"] if tokens[4] == "put" else tokens[-1]
                        reply = self.refusals.get((tokens[4], name)) or await answer(tokens[-1], body)
                except (nats.errors.Error, OSError, TimeoutError):
                    reply = {"result": "error", "message": "Internal storage error"}
            with contextlib.suppress(nats.errors.Error):
                await message.respond(json.dumps(reply).encode())

        return serve

    async def _put(self, _: str, manifest: Any) -> Reply:
        name, version = manifest["metadata"]["name"], manifest["metadata"]["annotations"]["version"]
        stored = await self._stored(name) or {"manifests": {}, "deployed_version": None}
        if version in stored["manifests"]:
            return {"result": "error", "message": f"Manifest version {version} already exists"}
        stored["manifests"][version] = manifest
        await self._store(name, stored)
        count = len(stored["manifests"])
        result = "created" if count == 1 else "newversion"
        return {"result": result, "name": name, "total_versions": count, "current_version": version, "message": ""}

    async def _deploy(self, name: str, body: Any) -> Reply:
        stored = await self._stored(name)
        if stored is None:
            return {"result": "notfound", "message": "", "name": name}
        version = body.get("version") or list(stored["manifests"])[-1]
        if version not in stored["manifests"]:
            reason = f"Application with the name {name} does not have the specified version to deploy"
            return {"result": "error", "message": reason, "name": name}
        await self._store(name, {**stored, "deployed_version": version})
        return {"result": "acknowledged", "message": "", "name": name, "version": version}

    async def _undeploy(self, name: str, _: Any) -> Reply:
        stored = await self._stored(name)
        if stored is None:
            return {"result": "notfound", "message": "", "name": name}
        await self._store(name, {**stored, "deployed_version": None})
        return {"result": "acknowledged", "message": "", "name": name}

    async def _delete(self, name: str, _: Any) -> Reply:
        if await self._stored(name) is None:
            return {"result": "noop", "message": "", "undeploy": False}
        listed = [item for item in await self._names() or [] if item != name]
        await self.kv.put(self.key, json.dumps(listed).encode())
        await self.kv.purge(f"{self.key}-{name}")
        return {"result": "deleted", "message": "", "undeploy": True}

    async def _get(self, name: str, body: Any) -> Reply:
        stored = await self._stored(name)
        manifests = {} if stored is None else stored["manifests"]
        wanted = body.get("version") or next(reversed(manifests), "")
        if wanted not in manifests:
            return {"result": "notfound", "message": "", "manifest": None}
        return {"result": "success", "message": "", "manifest": manifests[wanted]}

    async def _list(self, *_: Any) -> list[Reply]:
        found = {name: await self._stored(name) for name in await self._names() or []}
        return [
            {
                "name": name,
                "version": list(stored["manifests"])[-1],
                "deployed_version": stored["deployed_version"],
                "detailed_status": self.statuses.get(name, _NO_STATUS),
            }
            for name, stored in found.items()
            if stored is not None
        ]

    async def _models(self, *_: Any) -> Reply:
        return {"result": "success", "message": "", "models": await self._list()}

    async def _versions(self, name: str, _: Any) -> Reply:
        stored = await self._stored(name)
        if stored is None:
            return {"result": "notfound", "message": "", "versions": []}
        deployed = stored["deployed_version"]
        versions = [
            {"version": manifest, "created": "", "deployed": manifest == deployed} for manifest in stored["manifests"]
        ]
        return {"result": "success", "message": "", "versions": versions}

    async def _status(self, name: str, _: Any) -> Reply:
        # wadm answers so, too, about what it does not have.
        empty = {"status": {"type": "undeployed"}, "version": "", "components": []}
        message = f"Successfully fetched status for application {name}"
        return {"result": "ok", "message": message, "status": self.statuses.get(name, empty)}

    async def _stored(self, name: str) -> Reply | None:
        try:
            found = await self.kv.get(f"{self.key}-{name}")
        except (KeyNotFoundError, KeyDeletedError):
            return None
        stored: Reply = json.loads(found.value or b"")
        return stored if next(reversed(stored["manifests"].values()))["metadata"]["name"] == name else None

    async def _names(self) -> list[str] | None:
        try:
            found = await self.kv.get(self.key)
        except (KeyNotFoundError, KeyDeletedError):
            return None
        listed: list[str] = json.loads(found.value or b"")
        return listed

    async def _store(self, name: str, stored: Reply) -> None:
        """Store an application, then its name, as wadm does at each write."""
        await self.kv.put(f"{self.key}-{name}", json.dumps(stored).encode())
        listed = await self._names() or []
        if name not in listed and name not in self.unlisted:
            await self.kv.put(self.key, json.dumps(sorted([*listed, name])).encode())
        self.unlisted.discard(name)

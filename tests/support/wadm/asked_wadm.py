"""A wadm that only answers: list, get and versions of applications that a test gave it, on a NATS of the test's.

Its answers have the shapes of recorded ones (``tests/data/lattice/wadm-replies.jsonl``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

from nats.aio.msg import Msg

from support.nats.reconnecting import left, reconnecting
from support.suite.settling import settle

Manifest = dict[str, Any]


def manifest(name: str, version: str, image: str = "example.com/a:1", **metadata: Any) -> Manifest:
    """Return an application of one component, as wadm gives it back."""
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "annotations": {"version": version}, **metadata},
        "spec": {
            "components": [
                {
                    "name": "main",
                    "type": "component",
                    "properties": {"image": image},
                    "traits": [{"type": "spreadscaler", "properties": {"instances": 1}}],
                }
            ]
        },
    }


@dataclass
class AskedWadm:
    """A context manager. ``models``: by name the versions, the oldest first; ``deployed``: by name which runs."""

    url: str
    lattice: str
    models: dict[str, list[Manifest]] = field(default_factory=dict)
    deployed: dict[str, str] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self.client = await reconnecting(self.url)
        await self.client.subscribe(f"wadm.api.{self.lattice}.model.>", cb=self._answer)
        await settle(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await left(self.client)

    def put(self, given: Manifest, *, deployed: bool = False) -> None:
        """Let it have a version."""
        name = given["metadata"]["name"]
        self.models.setdefault(name, []).append(given)
        if deployed:
            self.deployed[name] = version_of(given)

    async def _answer(self, message: Msg) -> None:
        verb, _, name = message.subject.partition(".model.")[2].partition(".")
        body = json.loads(message.data) if message.data else {}
        answer: Any
        if verb == "list":
            answer = [self._summary(model) for model in sorted(self.models)]
        elif name not in self.models:
            answer = {"result": "notfound", "message": f"no application {name}"}
        elif verb == "versions":
            rows = [{"version": version_of(model), "deployed": self._runs(model)} for model in self.models[name]]
            answer = {"result": "success", "message": "", "versions": rows}
        else:
            wanted = body.get("version") or version_of(self.models[name][-1])
            found = next((model for model in self.models[name] if version_of(model) == wanted), None)
            answer = {"result": "success" if found else "notfound", "message": "", "manifest": found}
        await message.respond(json.dumps(answer).encode())

    def _runs(self, one: Manifest) -> bool:
        return self.deployed.get(one["metadata"]["name"]) == version_of(one)

    def _summary(self, name: str) -> Manifest:
        status = "deployed" if name in self.deployed else "undeployed"
        return {
            "name": name,
            "version": version_of(self.models[name][-1]),
            "deployed_version": self.deployed.get(name),
            "detailed_status": {"status": {"type": status, "message": ""}, "scalers": []},
        }


def version_of(one: Manifest) -> str:
    """Return the version of a manifest."""
    return str(one["metadata"]["annotations"]["version"])

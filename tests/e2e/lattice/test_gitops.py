"""Applications as kubectl, Flux and Argo CD treat them: the real kubectl, a real API server, a real wadm."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import RealLattice, Wadm, application, http_server, wasm_component
from support.nodes.fleet import is_ours
from support.wadm.application_world import ApplicationWorld
from trellis.kube.resources import APPLICATIONS

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
CONFIG = {"name": "greeting", "properties": {"text": "hello"}}
KIND = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind}


class Kubectl:
    """The real one, in the test's namespace, with files of the test's own."""

    def __init__(self, apps: ApplicationWorld, directory: Path) -> None:
        info = apps.hosts.fleet.info
        self._command = [str(info.bin_dir / "kubectl"), "--kubeconfig", str(info.kubeconfig), "-n", apps.namespace]
        self._directory = directory

    def usual(self, name: str) -> str:
        """Write a manifest as people do: old field names, what is empty, an order of their own; return its path."""
        link = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "target": "echo"}
        link["source_config"] = [{"name": "address", "properties": {"address": "0.0.0.0:8080"}}]
        server = http_server()
        server["traits"] = [{"type": "link", "properties": link}, *server["traits"]]
        echo = wasm_component("echo", "file:///none-1.wasm")
        echo["properties"]["config"] = [CONFIG]
        spec = {"components": [server, echo], "policies": []}
        return self.write(name, spec, description="says: hello")

    def write(self, name: str, spec: Manifest, **annotations: str) -> str:
        """Write a manifest; return its path."""
        metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
        path = self._directory / f"{name}-{secrets.token_hex(4)}.yaml"
        path.write_text(yaml.safe_dump(KIND | {"metadata": metadata, "spec": spec}))
        return str(path)

    async def __call__(self, *arguments: str) -> tuple[int, str]:
        """Run it; return its exit status and its output."""
        process = await self.start(*arguments)
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start it, and leave it running."""
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"KUBECTL_EXTERNAL_DIFF": "diff -u"},
        )


@pytest.fixture
def kubectl(apps: ApplicationWorld, tmp_path: Path) -> Kubectl:
    return Kubectl(apps, tmp_path)


def writes(apps: ApplicationWorld, offset: int) -> list[tuple[str, str]]:
    """Return our writes to Applications since then."""
    return [
        (write["verb"], write["objectRef"]["name"])
        for write in apps.hosts.fleet.writes(offset)
        if is_ours(write)
        and write["objectRef"].get("resource") == APPLICATIONS.plural
        and write["objectRef"].get("namespace") == apps.namespace
    ]


def _desired(found: Manifest) -> list[Any]:
    """Return what a tool compares."""
    return [found["spec"], *(found["metadata"].get(part) or {} for part in ("annotations", "labels"))]


async def seen(apps: ApplicationWorld, name: str) -> None:
    """Wait until what happens now has been seen: what happened before was seen, too."""
    apps.apply(name, {"components": [wasm_component("echo", "file:///none-1.wasm")]})
    await apps.synced(name)


async def test_kubectl_applies_and_waits(apps: ApplicationWorld, kubectl: Kubectl, real_lattice: RealLattice) -> None:
    apps.group()
    path = kubectl.write("web", {"components": [http_server("server")]})
    async with apps.manager(), real_lattice.hosts(apps.lattice):
        code, printed = await kubectl("apply", "-f", path)
        assert (code, printed.split()[-1]) == (0, "created")
        code, printed = await kubectl("wait", "--for=condition=Ready", "applications.core.oam.dev/web", "--timeout=60s")
        assert code == 0, printed
        code, printed = await kubectl("get", "applications.core.oam.dev", "web")
        header, row = (line.split() for line in printed.splitlines())
        assert (header[:3], header[-1]) == (["NAME", "READY", "REASON"], "AGE")
        shown = dict(zip(header, row, strict=True))
        assert (shown["NAME"], shown["READY"]) == ("web", "True")
        assert shown["DEPLOYED"] == apps.status("web")["synced"]["wadmVersion"]


async def test_applying_an_unchanged_manifest_again_writes_nothing(apps: ApplicationWorld, kubectl: Kubectl) -> None:
    apps.group()
    path = kubectl.usual("web")
    async with apps.manager():
        await kubectl("apply", "-f", path)
        await apps.synced("web")
        offset = apps.hosts.fleet.audit_offset()
        before = apps.find("web")
        for _ in range(3):
            assert await kubectl("apply", "-f", path) == (0, "application.core.oam.dev/web unchanged\n")
            assert await kubectl("diff", "-f", path) == (0, "")
        await seen(apps, "later")
        assert [write for write in writes(apps, offset) if write[1] == "web"] == []
        assert apps.find("web") == before
        assert len(apps.status("web")["versions"]) == 1


@pytest.mark.parametrize("tool", ["kustomize-controller", "argocd-controller"])
async def test_a_tool_that_dry_runs_and_applies_for_ever_converges(
    apps: ApplicationWorld, wadm: Wadm, kubectl: Kubectl, tool: str
) -> None:
    apps.group()
    path = kubectl.usual("web")
    server_side = ("--server-side", "--force-conflicts", f"--field-manager={tool}")
    async with apps.manager():

        async def drifted() -> bool:
            code, shown = await kubectl("apply", *server_side, "--dry-run=server", "-f", path, "-o", "json")
            assert code == 0, shown
            wanted, found = json.loads(shown), apps.find("web")
            return found is None or _desired(wanted) != _desired(found)

        assert await drifted()
        await kubectl("apply", *server_side, "-f", path)
        version = (await apps.synced("web"))["status"]["synced"]["wadmVersion"]
        await wadm.put(application("web", wasm_component("echo", "file:///other.wasm"), version="w1"))
        await wadm.deploy("web", "w1")
        await apps.synced("web", version="w1")
        assert await drifted()
        await kubectl("apply", *server_side, "-f", path)
        found = await apps.synced("web", version=version)
        assert "version" not in found["metadata"]["annotations"]
        manifest = (await wadm._ask("get.web", {"version": version}))["manifest"]
        assert {component["name"] for component in manifest["spec"]["components"]} == {"httpserver", "echo"}
        offset = apps.hosts.fleet.audit_offset()
        for _ in range(3):
            assert not await drifted()
            await kubectl("apply", *server_side, "-f", path)
        await seen(apps, "later")
        assert [write for write in writes(apps, offset) if write[1] == "web"] == []


async def test_two_managers_apply_a_component_each(apps: ApplicationWorld, wadm: Wadm, kubectl: Kubectl) -> None:
    apps.group()

    def part(name: str, image: str) -> str:
        return kubectl.write("web", {"components": [wasm_component(name, image)]})

    async def components() -> dict[str, str]:
        version = (await apps.synced("web"))["status"]["synced"]["wadmVersion"]
        found = (await wadm._ask("get.web", {"version": version}))["manifest"]["spec"]["components"]
        return {item["name"]: item["properties"]["image"] for item in found}

    async with apps.manager():
        item, two = part("one", "file:///1.wasm"), part("two", "file:///2.wasm")
        for manager, path in (("team-one", item), ("team-two", two)):
            assert (await kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", path))[0] == 0
            await apps.synced("web")  # two changes in one run would be one version
        assert await components() == {"one": "file:///1.wasm", "two": "file:///2.wasm"}
        changed = part("one", "file:///3.wasm")
        code, printed = await kubectl("apply", "--server-side", "--field-manager=team-two", "-f", changed)
        assert code != 0
        assert "team-one" in printed
        assert (await kubectl("apply", "--server-side", "--field-manager=team-one", "-f", changed))[0] == 0
        await apps.until("web", "three versions", lambda found: len(found["status"]["versions"]) == 3)
        assert await components() == {"one": "file:///3.wasm", "two": "file:///2.wasm"}


async def test_a_watch_shows_what_wash_does(apps: ApplicationWorld, wadm: Wadm, kubectl: Kubectl) -> None:
    apps.group()
    async with apps.manager():
        watch = await kubectl.start(
            "get", "applications.core.oam.dev", "--watch", "--output-watch-events", "-o",
            "jsonpath={.type} {.object.metadata.name} {.object.status.phase}{'\\n'}",
        )  # fmt: skip
        shown: list[str] = []

        async def until(*wanted: str) -> None:
            async with asyncio.timeout(PATIENCE):
                while not any(line in wanted for line in shown):
                    assert watch.stdout is not None
                    shown.append((await watch.stdout.readline()).decode().strip())

        try:
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await until("ADDED web Undeployed", "MODIFIED web Undeployed")
            await wadm.deploy("web", "w1")
            await until("MODIFIED web Reconciling", "MODIFIED web Failed", "MODIFIED web Waiting")
            await wadm.delete("web")
            await until(*(f"DELETED web {phase}" for phase in ("Undeployed", "Reconciling", "Failed", "Waiting")))
        except TimeoutError:
            pytest.fail(f"the watch showed {shown}")
        finally:
            watch.terminate()
            await watch.wait()

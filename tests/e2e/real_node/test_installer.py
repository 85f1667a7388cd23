"""Our own installer on real nodes: a Wasm shim goes on, runs Wasm, changes its version, and goes without a trace."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from support.nodes.busy_wasm import busy_image, busy_pod
from support.nodes.installer_image import INSTALLER, installer_image
from support.nodes.installer_runs import NODE, InstallerJobs, hanging_program
from support.nodes.real_nodes import RUNTIME_CLASS, Kubectl, RealNode, eventually, fingerprint, pod, wasm_pod
from trellis.installer_api.result import FailureReason, Outcome
from trellis_dev.localcluster import ClusterInfo, debian, owned_cluster
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture, hello_wasm_image
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image, power_off, power_on, run_in
from trellis_dev.localcluster.wasmshim import SHIM, hello_module, shim

SERVER = "trellis.local/shim-server:1"
_FASTIDIOUS = """
mkdir -p /usr/lib/containerd
cp /usr/bin/containerd /usr/lib/containerd/containerd
cat > /usr/bin/.new <<END
#!/bin/sh
grep -q wasi /etc/containerd/config.toml && echo 'no Wasm here' && exit 1
exec /usr/lib/containerd/containerd "\\$@"
END
chmod 755 /usr/bin/.new
mv /usr/bin/.new /usr/bin/containerd
"""
"""Makes a containerd that does not start where its configuration names the shim."""
INSTALLED = "opt/trellis/bin/containerd-shim-wasi"


@dataclass(frozen=True)
class World:
    """A cluster of one real node, and a web server on it with the shim in several forms."""

    info: ClusterInfo
    kubectl: Kubectl
    jobs: InstallerJobs
    files: Path
    url: str

    def spec(self, file: str, **fields: Any) -> dict[str, Any]:
        """Return a spec for the shim in one form, whose digest is the form's name."""
        source = {"location": f"{self.url}/{file}", "arch": architecture(), "sha256": self.digest(file)}
        source = {key: value for key, value in {**source, **fields}.items() if value is not None}
        wanted = {"name": "wasi", "handler": "wasi", "digest": file, "owner": "shim/wasi", "sources": [source]}
        return {"shims": [wanted], "allowHttp": True}

    def digest(self, file: str) -> str:
        return hashlib.sha256((self.files / file).read_bytes()).hexdigest()

    def serves(self) -> bool:
        """Return whether the web server answers."""
        ask = ["busybox", "wget", "-q", "-O", "/dev/null", f"{self.url}/no-shim"]
        return run_in(self.info.name, NODE, ask).returncode == 0

    def handlers(self) -> bool:
        """Return whether the node lists the handler, as far as its containerd reports handlers."""
        return "wasi" in self.kubectl.handlers(NODE)

    def install(self, name: str, file: str = "shim") -> None:
        """Install the shim, and see that it is."""
        ended = self.jobs.run(name, "install", spec=self.spec(file))
        assert ended.result.outcome is Outcome.INSTALLED, ended.log

    def uninstall(self, name: str) -> None:
        """Uninstall the shim, and check that it is removed."""
        ended = self.jobs.run(name, "uninstall", spec=self.spec("shim"))
        assert ended.result.outcome is Outcome.REMOVED, ended.log


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim as it is, as a large archive of a later version, and things that are no shim."""
    how, folder = How(Lines(), threading.Event()), tmp_path_factory.mktemp("files")
    program = shim(how).read_bytes()
    (folder / "shim").write_bytes(program)
    noise = random.Random(1)
    # Behind its end a program may have anything: the same one, but 60 MiB larger.
    later = program + b"".join(noise.randbytes(1 << 18) + bytes(3 << 18) for _ in range(60))
    (folder / "later").write_bytes(later)
    (folder / "later.tar.zst").write_bytes(zstd.compress(_a_tar(later), 3))
    other = {"amd64": 183, "arm64": 62}[architecture()]
    (folder / "other-machine").write_bytes(program[:18] + struct.pack("<H", other) + program[20:])
    (folder / "no-shim").write_bytes((debian.tree("node", how) / "bin/busybox").read_bytes())
    (folder / "hangs").write_bytes(hanging_program(architecture()))
    return folder


def _a_tar(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(SHIM)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(scope="module", params=["2", "1.6"])
def world(
    request: pytest.FixtureRequest, files: Path, machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """One real node, with containerd 2 and with 1.6."""
    assert machine
    how, folder = How(Lines(), threading.Event()), tmp_path_factory.mktemp("images")
    served = {f"srv/{path.name}": path for path in files.iterdir()}
    program = {"bin/busybox": debian.tree("node", how) / "bin/busybox"}
    serve = ["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/srv"]
    write_image(folder / "server.tar", Image(SERVER, serve, architecture()), {**program, **served})
    images = [installer_image(how), hello_wasm_image(hello_module(how), how), folder / "server.tar"]
    images.append(busy_image(folder))
    with owned_cluster(real_nodes=1, containerd=request.param) as info:
        for archive in images:
            load_image(info.name, NODE, archive)
        kubectl = Kubectl(info)
        kubectl.create(RUNTIME_CLASS)
        server = _entrypoint(pod("server", "", NODE, image=SERVER))
        # In the node's own network: its address stays over a reboot.
        server["spec"] |= {"restartPolicy": "Always", "hostNetwork": True}
        kubectl.create(server)
        url = f"http://{info.real_nodes[0].address}:8080"
        world = World(info, kubectl, InstallerJobs(RealNode(info)), files, url)
        eventually(world.serves, "the web server answers")
        yield world


def _entrypoint(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that runs what its image says."""
    del manifest["spec"]["containers"][0]["command"]
    return manifest


def test_a_shim_goes_on_runs_wasm_and_goes_without_a_trace(world: World, machine: dict[str, str]) -> None:
    before, restarts = world.jobs.tree(), world.jobs.restarts()
    tells = bool(world.kubectl.handlers(NODE))

    ended = world.jobs.run("install", "install", spec=world.spec("shim"))
    assert (ended.code, ended.result.outcome, ended.result.restarted) == (0, Outcome.INSTALLED, True), ended.log
    (shim,) = ended.result.shims
    assert (shim.handler, shim.verified, shim.version) == ("wasi", True, "0.1.0")
    assert shim.sha256 == world.digest("shim")
    assert world.jobs.restarts() == restarts + 1
    if tells:
        eventually(world.handlers, "the node lists the handler", 60)
    world.kubectl.create(wasm_pod("hello", NODE, "wasi"))
    assert world.kubectl.ended("hello") == "hello from wasm\n"
    world.kubectl("delete", "pod", "hello", "--now")

    again = world.jobs.run("again", "install", spec=world.spec("shim"))
    assert (again.result.outcome, world.jobs.restarts()) == (Outcome.UNCHANGED, restarts + 1), again.log

    world.uninstall("uninstall")
    assert world.jobs.restarts() == restarts + 2
    eventually(lambda: not world.handlers(), "the node forgets the handler", 60)
    assert world.jobs.tree() == before
    assert fingerprint("/etc", "/opt") == machine


def test_a_later_version_needs_no_restart_and_no_more_memory_than_its_job_has(world: World) -> None:
    before = world.jobs.tree()
    world.install("first")
    restarts = world.jobs.restarts()
    ended = world.jobs.run("later", "install", spec=world.spec("later.tar.zst"))
    assert (ended.result.outcome, ended.result.restarted) == (Outcome.INSTALLED, False), ended.log
    assert world.jobs.restarts() == restarts
    installed = (world.jobs.root() / INSTALLED).read_bytes()
    assert hashlib.sha256(installed).hexdigest() == world.digest("later") == ended.result.shims[0].sha256
    world.kubectl.create(wasm_pod("hello-later", NODE, "wasi"))
    assert world.kubectl.ended("hello-later") == "hello from wasm\n"
    world.kubectl("delete", "pod", "hello-later", "--now")
    world.uninstall("uninstall-later")
    assert world.jobs.tree() == before


@pytest.mark.parametrize(
    ("file", "fields", "reason", "code"),
    [
        ("shim", {"sha256": "0" * 64}, FailureReason.CHECKSUM_MISMATCH, 2),
        ("shim", {"sha256": None}, FailureReason.CHECKSUM_MISSING, 2),
        ("shim", {"location": "http://127.0.0.1:1/shim"}, FailureReason.DOWNLOAD_FAILED, 1),
        ("other-machine", {}, FailureReason.WRONG_ARCHITECTURE, 2),
        ("no-shim", {}, FailureReason.SHIM_NOT_EXECUTABLE, 1),
        ("hangs", {}, FailureReason.SHIM_NOT_EXECUTABLE, 1),
    ],
    ids=["checksum", "no-checksum", "no-server", "other-machine", "no-shim", "hangs"],
)
def test_a_faulty_shim_is_refused_and_the_node_unchanged(
    world: World, file: str, fields: dict[str, Any], reason: FailureReason, code: int
) -> None:
    before, restarts = world.jobs.tree(), world.jobs.restarts()
    ended = world.jobs.run(f"wrong-{file}-{reason.lower()}", "install", spec=world.spec(file, **fields))
    assert (ended.result.reason, ended.code) == (reason, code), ended.log
    assert ended.result.message in " ".join(ended.log.split())
    assert world.jobs.tree() == before
    assert world.jobs.restarts() == restarts


def test_a_shim_that_runs_a_pod_is_not_removed(world: World) -> None:
    before = world.jobs.tree()
    world.install("for-busy")
    world.kubectl.create(busy_pod("busy", NODE, "wasi"))
    eventually(lambda: world.kubectl.phase("busy") == "Running", "the pod runs")
    refused = world.jobs.run("too-early", "uninstall", spec=world.spec("shim"))
    assert refused.result.reason is FailureReason.SHIMS_IN_USE, refused.log
    assert f"/{INSTALLED}" in refused.result.message
    assert world.kubectl.phase("busy") == "Running"
    world.kubectl("delete", "pod", "busy", "--now")
    world.uninstall("in-time")
    assert world.jobs.tree() == before


def test_a_node_that_loses_power_while_its_runtime_restarts_is_finished_by_the_next_run(world: World) -> None:
    before = world.jobs.tree()
    journal = world.info.real_nodes[0].root / "opt/trellis/installer/journal.json"

    def restarting() -> bool:
        try:
            return bool(json.loads(journal.read_bytes())["phase"] == "restarting")
        except (OSError, ValueError):
            return False

    world.jobs.start("cut", "install", spec=world.spec("shim"))
    eventually(restarting, "the installer restarts containerd", 60)
    power_off(world.info.name, NODE)
    assert journal.exists()
    power_on(world.info.name, NODE)
    eventually(lambda: world.kubectl.ready(NODE) == "True", "the node is Ready")
    world.kubectl("delete", "job", "cut", "--wait=false")
    eventually(world.serves, "the web server answers again")
    ended = world.jobs.run("finish", "install", spec=world.spec("shim"))
    assert ended.result.outcome is Outcome.INSTALLED, ended.log
    assert not journal.exists()
    world.uninstall("after-the-cut")
    assert world.jobs.tree() == before


def test_a_runtime_that_does_not_start_with_it_gets_its_former_configuration_back(world: World) -> None:
    run_in(world.info.name, NODE, ["sh", "-ec", _FASTIDIOUS])
    before, restarts = world.jobs.tree(), world.jobs.restarts()
    ended = world.jobs.run("unwanted", "install", spec=world.spec("shim"))
    assert (ended.result.outcome, ended.code) == (Outcome.ROLLED_BACK, 2), ended.log
    assert world.jobs.tree() == before
    assert world.jobs.restarts() == restarts + 1
    world.kubectl.create(pod("after-rollback", "echo still here", NODE))
    assert world.kubectl.ended("after-rollback") == "still here\n"
    again = world.jobs.run("unwanted-again", "install", spec=world.spec("shim"))
    assert (again.result.reason, again.code) == (FailureReason.REFUSED_BEFORE, 2), again.log
    assert world.jobs.restarts() == restarts + 1
    assert world.jobs.tree() == before
    run_in(world.info.name, NODE, ["mv", "/usr/lib/containerd/containerd", "/usr/bin/containerd"])


def test_the_image_holds_the_installer_and_nothing_of_the_services(world: World) -> None:
    unwanted = ("kubernetes", "nats", "faststream", "pydantic", "opentelemetry", "grpc", "pip")
    ask = (
        "from importlib.metadata import version; from importlib.util import find_spec; "
        f"print(version('trellis-wasm'), [name for name in {unwanted} if find_spec(name)])"
    )
    manifest = pod("holds", "", NODE, image=INSTALLER)
    manifest["spec"]["containers"][0]["command"] = ["/opt/trellis-installer/bin/python3", "-c", ask]
    world.kubectl.create(manifest)
    assert world.kubectl.ended("holds") == f"{version('trellis-wasm')} []\n"
    world.kubectl("delete", "pod", "holds", "--now")


def test_inspect_states_what_is_on_the_node(world: World) -> None:
    before = world.jobs.tree()
    ended = world.jobs.run("inspect", "inspect")
    assert (ended.code, ended.result.outcome, ended.result.preset) == (0, Outcome.INSPECTED, "containerd"), ended.log
    assert "systemctl restart containerd.service" in ended.log
    assert world.jobs.tree() == before

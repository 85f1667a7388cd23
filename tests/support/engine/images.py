"""Images that stand in for public ones under their names, as there is no registry: for builds and for Compose.

In: an engine. Out: images in it. Called by tests of docker-compose.yml. nats and Jaeger are the real programs; the
bases of builds are Debian with Python, and the packages, the page and the runtime are in the context. k3s is a
stand-in: a real control plane, and a node that kwok simulates. It does not prove that k3s starts, that a pod runs
there, or that the installer works there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from support.engine.engine import Engine
from trellis_dev.demo.kubelets import INSTALLER_STAGE
from trellis_dev.localcluster import commands, debian, own_images, page, stages, tools
from trellis_dev.localcluster.building import How, LoggedBuild
from trellis_dev.localcluster.certs import USERS, write_pki, write_private
from trellis_dev.localcluster.nodes import node_manifest
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK
from trellis_dev.localcluster.start import kubeconfig
from trellis_dev.localcluster.wasmshim import runtime

BASES: Final = ("python:3.11-slim", "node:22-slim", "rust:1.95-slim-bookworm")
_APPLETS: Final = (
    *("cat", "chmod", "cp", "grep", "hostname", "kill", "mkdir", "rm", "sed", "sh", "sleep", "tar", "test", "true"),
    "wget",
)
_STORES: Final = ("etcd", "kube-apiserver")
_CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
_IN_IMAGE: Final = Path("/srv")
_KUBECTL: Final = '#!/bin/sh\nKUBECONFIG="${KUBECONFIG:-/srv/kubeconfig}" exec /srv/bin/kubectl "$@"\n'
_CTR: Final = (
    "#!/bin/sh\n# Takes an archive and keeps nothing: no container runs here.\ntar -t | grep -q manifest.json\n"
)


def import_images(engine: Engine, services: Mapping[str, Mapping[str, object]], how: How) -> None:
    """Import the images of Compose services that are not built, and the bases of builds."""
    images = {name: str(service.get("image", "")) for name, service in services.items()}
    python = debian.tree("python", how)
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        archive = Path(folder) / "python.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(python, arcname=".", filter=lambda entry: None if entry.isdev() else entry)
        engine.run("docker", "import", archive, BASES[0])
        for name in BASES[1:]:
            engine.run("docker", "tag", BASES[0], name)
        shell = {"bin/busybox": debian.tree("node", how) / "bin/busybox"}
        nats = {"bin/nats-server": tools.ensure("nats-server", how.progress)}
        _import(engine, images["nats"], {**shell, **nats}, ["nats-server"])
        _import(engine, images["jaeger"], {**shell, "bin/jaeger": tools.ensure("jaeger", how.progress)}, ["jaeger"])
        _import(engine, images["k3s"], {**shell, **_k3s(Path(folder) / "k3s", how)}, ["/bin/k3s"])


def fill_context(checkout: Path, context: Path, how: How) -> None:
    """Copy the files of a checkout that git knows, and what the builds would download."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = checkout / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # deleted and not yet committed
            shutil.copy2(source, target, follow_symlinks=False)
    for image in (own_images.SERVICES, own_images.INSTALLER):
        log = context.parent / f"{image.key}.log"
        build = LoggedBuild(context, log, how.abort, dict(os.environ), "The packages of the lock are needed.")
        own_images.fill_context(context, image, checkout, build)
    shutil.copytree(runtime(how), context / "installer-runtime")
    shutil.copytree(page.page_of(checkout, how), context / page.BUILT, dirs_exist_ok=True)
    ignored = context / ".dockerignore"
    lines = ignored.read_text().splitlines()
    assert "services/console/static" in lines
    ignored.write_text("\n".join(line for line in lines if line != "services/console/static"))


def _k3s(folder: Path, how: How) -> dict[str, Path]:
    """Return the files of the stand-in of k3s."""
    layout, there = Layout(folder), Layout(_IN_IMAGE)
    layout.pki.mkdir(parents=True)
    write_pki(layout.pki, hosts=["k3s"])
    ports = {"etcd": 2379, "etcd-peer": 2380, "kube-apiserver": 6443}
    for user in USERS:
        server = f"https://{LOOPBACK}:{ports['kube-apiserver']}"
        write_private(layout.kubeconfig(user), kubeconfig(layout, server, user).encode())
    programs = tools.ensure_all([*_STORES, *_CONTROLLERS, "kubectl"], how.progress)
    for file, names in (("stores", _STORES), ("controllers", _CONTROLLERS)):
        lines = [" ".join(commands.command(name, there, ports, audit=False)) for name in names]
        text = "".join(f"{line}\n" for line in lines).replace(f"--bind-address={LOOPBACK}", "--bind-address=0.0.0.0")
        (folder / file).write_text(text.replace(str(there.data), "/var/lib/rancher/k3s"))
    layout.stages.write_text(stages.merge(stages.ensure_stages(how.progress, how.abort), [INSTALLER_STAGE]))
    (folder / "node.json").write_text(json.dumps(node_manifest("NODE-NAME")))
    (folder / "kubectl").write_text(_KUBECTL)
    (folder / "ctr").write_text(_CTR)
    made = {f"srv/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    return {
        **made,
        **{f"srv/bin/{name}": path for name, path in programs.items()},
        "bin/kubectl": folder / "kubectl",
        "bin/ctr": folder / "ctr",
        "bin/k3s": Path(__file__).with_name("k3s.sh"),
    }


def _import(engine: Engine, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Import an image with a shell and these files, all executable."""
    with tempfile.NamedTemporaryFile(dir=engine.folder, suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for path in ("tmp", "var/lib", "root"):
                entry = tarfile.TarInfo(path)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
                tar.addfile(entry)
            for path, source in files.items():
                content = source.read_bytes()
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
            for applet in _APPLETS:
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
        file.flush()
        changes = [f"--change=ENTRYPOINT {json.dumps(list(entrypoint))}", "--change=ENV PATH=/usr/bin:/bin"]
        engine.run("docker", "import", *changes, file.name, name)

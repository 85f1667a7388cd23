"""Nodes as directory trees, and a container runtime that reads its configuration as the real ones do."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import shutil
import struct
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node_installer.containerd import config
from node_installer.domain.actions import RestartRuntime
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Live
from node_installer.domain.presets import Style
from node_installer.domain.refusal import PATH as REFUSED
from node_installer.gather import find_preset
from node_installer.node.commands import Answer
from node_installer.node.disk import Disk
from node_installer.node.file_metadata import metadata_of
from node_installer.node.runtime import agrees
from node_installer.operations import Node, perform
from node_installer.session import Session
from node_installer.settings import Settings
from node_installer.spans import Tracer
from node_installer.timings import Timings
from trellis.installer_api.result import FailureReason, InstallResult
from trellis.installer_api.spec import ARCHITECTURES

DATA = Path(__file__).parents[2] / "data" / "node_installer"
ARCH = ARCHITECTURES[platform.machine()]
MACHINES = {"amd64": 62, "arm64": 183}


class Killed(BaseException):
    """The process died here (kill -9): nothing after it happened."""


def a_shim(text: str = "one", arch: str = ARCH) -> bytes:
    """A program by its header; it answers unless its text says broken."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, MACHINES[arch])
    return head + bytes(44) + text.encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def a_wanted_shim(image: Path, *, handler: str = "spin", content: bytes | None = None, **fields: Any) -> dict[str, Any]:
    """A shim that lies in the installer's image."""
    content = a_shim() if content is None else content
    path = image / "assets" / f"{handler}-{sha256(content)[:8]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    location = "/" + str(path.relative_to(image))
    source = {"location": location, "arch": ARCH, "sha256": sha256(content), "binarySha256": sha256(content)}
    return {"name": handler, "handler": handler, "owner": f"shim/{handler}", "sources": [source], **fields}


def a_spec(*shims: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"shims": list(shims), **fields})


class FakeRuntime:
    """Reads the node's configuration at each restart: imports, templates and all. ``tells``: over CRI, its handlers."""

    def __init__(self, disk: Disk, preset_name: str | None = None, *, version: str = "1.7.27") -> None:
        self.disk = disk
        self.preset = find_preset(disk, preset_name)
        self.version = version
        self.restarts = 0
        self.stopped: list[str] = []
        self.tells = True
        self.systemd_cgroup = False
        self.base = disk.read(self.preset.config) or b""
        self.up = True
        self.refuses: str | None = None
        self.dies: type[BaseException] | None = None
        self.loaded: dict[str, Any] = {}
        self.load()

    def load(self) -> None:
        try:
            self.loaded = self.effective()
            self.up = True
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            self.up = False

    def effective(self) -> dict[str, Any]:
        if self.preset.style is Style.TEMPLATE:
            self._render()
        document = self._document(self.preset.config)
        if self.preset.style is Style.DROPIN and (self.disk.read(self.preset.config) or b"").startswith(b"# k0s_man"):
            extra = self.disk.matches(f"{self.preset.dropins}/*.toml")
            return self._merged(document, extra, deep=True)
        imports = [self._absolute(item) for item in document.get("imports", [])]
        return self._merged(document, [path for item in imports for path in self.disk.matches(item)], deep=self.modern)

    @property
    def modern(self) -> bool:
        return not self.version.startswith("1.")

    def _absolute(self, item: str) -> str:
        return item if item.startswith("/") else f"{self.preset.config.rpartition('/')[0]}/{item}"

    def _document(self, path: str) -> dict[str, Any]:
        return tomllib.loads((self.disk.read(path) or b"").decode())

    def _merged(self, document: dict[str, Any], paths: Sequence[str], *, deep: bool) -> dict[str, Any]:
        document = copy.deepcopy(document)
        for path in paths:
            imported = self._document(path)
            if deep:
                _deep(document, imported)
            else:
                document.setdefault("plugins", {}).update(imported.pop("plugins", {}))
                document.update(imported)
        return document

    def _render(self) -> None:
        """As k3s and RKE2: the newest template there is, else the base alone."""
        folder = self.preset.config.rpartition("/")[0]
        base = self.base.decode()
        rendered = base
        for name in ("config-v3.toml.tmpl", "config.toml.tmpl"):
            template = self.disk.read(f"{folder}/{name}")
            if template is not None:
                own = base if "kata" not in base else base[: base.index("\n[plugins", base.rindex("runc.options"))]
                rendered = template.decode().replace('{{ template "base" . }}', own)
                break
        if self.disk.read(self.preset.config) != rendered.encode():
            self.disk.write(self.preset.config, rendered.encode())

    def runtimes(self) -> dict[str, str]:
        return config.runtimes_of(self.loaded)

    def live(self) -> Live | None:
        if not self.up:
            return None
        return Live(self.version, self.runtimes() if self.tells else None, self.systemd_cgroup)

    def stop(self, sandboxes: Sequence[str]) -> None:
        self.stopped += sandboxes

    def restart(self, found: Inspection, wanted: RestartRuntime) -> None:
        assert found.restart is not None
        self.restarts += 1
        self.load()
        if self.dies is not None:
            raise self.dies
        if self.refuses is not None and self.refuses in self.runtimes():
            self.up = False
        if not agrees(self.live(), wanted.present, wanted.absent):
            raise InstallError(FailureReason.RUNTIME_START_FAILED, "containerd did not answer within 0 s")


def _deep(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _deep(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = into[key] + [item for item in value if item not in into[key]]
        else:
            into[key] = value


@dataclass
class World:
    """One node and all that is needed to run the installer on it."""

    root: Path
    image: Path
    runtime: FakeRuntime
    disk: Disk
    active_unit: str = ""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    session: Session | None = None
    timings: Timings = Timings(pause=0.0)

    def run(self, command: Sequence[str], seconds: float) -> Answer:
        del seconds
        self.commands.append(tuple(command))
        if command[:2] == ("systemctl", "is-active"):
            return Answer(0 if command[-1] == self.active_unit else 3)
        content = self.disk.read(command[0])
        if content is None:
            return Answer(127, "not found")
        if b"broken" in content:
            return Answer(1, "/lib64/libc.so.6: version `GLIBC_2.38' not found")
        return Answer(0, f"{command[0]}:\n  Version: 0.19.0\n")

    def perform(self, operation: str, spec: str | None = None, **settings: Any) -> InstallResult:
        chosen = replace(Settings(operation, self.root, spec, lock_seconds=0.0, everything=spec is None), **settings)
        tracer = self.session.tracer if self.session else Tracer(None, None)
        self.session = Session(chosen, self.progress.append, tracer, image_root=self.image, timings=self.timings)
        return perform(self.session, lambda _: Node(self.disk, self.runtime.preset, self.runtime, self.run))

    def install(self, *shims: dict[str, Any], **settings: Any) -> InstallResult:
        return self.perform("install", a_spec(*shims), **settings)

    def uninstall(self, *shims: dict[str, Any], **settings: Any) -> InstallResult:
        return self.perform("uninstall", a_spec(*shims) if shims else None, **settings)

    def read(self, path: str) -> str:
        content = self.disk.read(path)
        assert content is not None, f"{path} is missing"
        return content.decode()

    def running(self, number: int, path: str) -> None:
        """Let a process run a program of the node."""
        folder = self.root / "proc" / str(number)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes(f"{path}\0-namespace\0k8s.io\0".encode())
        (folder / "exe").symlink_to(path)


def a_world(tmp_path: Path, fixture: str = "containerd-v2", *, version: str | None = None) -> World:
    """A node from a fixture tree. The runtime's version follows from its configuration unless it is given."""
    root, image = tmp_path / "node", tmp_path / "image"
    shutil.copytree(DATA / fixture / "tree", root, symlinks=True)
    image.mkdir(exist_ok=True)
    disk = Disk(root)
    unit = DATA / fixture / "active-unit"
    if version is None:
        text = (disk.read(find_preset(disk).config) or b"").decode()
        modern = any(mark in text for mark in ("version = 3", "version = 4", "io.containerd.cri.v1.runtime"))
        version = "2.1.4" if modern else "1.7.27"
    return World(root, image, FakeRuntime(disk, version=version), disk, unit.read_text() if unit.exists() else "")


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return all of a tree that must be restored: content, mode, owner, extended attributes, links and directories.

    The files that the installer keeps below /run until the next boot are omitted.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            key = str(path.relative_to(root))
            if f"/{key}" == REFUSED:
                continue
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[key] = ("directory", *metadata_of(path))
            elif path.is_file():
                found[key] = (path.read_bytes(), *metadata_of(path))
    return found

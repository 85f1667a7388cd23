"""Reads a node: its distribution, runtime configuration, files of Trellis and of other installers, and processes.

In: the node's disk, its processes, its runtime's socket. Out: an :class:`Inspection`. Called by ``operations``.
Invariant: it changes nothing on the node.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from node_installer.containerd import config
from node_installer.containerd.globs import has_meta
from node_installer.domain import cgroups, refusal
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Layout, Live, RestartCommand
from node_installer.domain.presets import LEFTOVERS, OPENRC_BOOTED, PRESETS, SYSTEMD_BOOTED, Preset, Restart, Style
from node_installer.domain.process import Process
from node_installer.domain.refusal import parse_refusal
from node_installer.domain.state import Journal, State, parse_journal, parse_state
from node_installer.domain.target import imported_name
from node_installer.node import processes
from node_installer.node.commands import Run
from node_installer.node.disk import Disk
from node_installer.node.runtime import Runtime
from trellis.installer_api.result import FailureReason
from trellis.installer_api.spec import ARCHITECTURES

_COMMAND_SECONDS: Final = 10.0
_TEMPLATES: Final = ("config.toml.tmpl", "config-v3.toml.tmpl")
_OS_ID = re.compile(r"^ID=[\"']?([a-z0-9._-]+)", re.MULTILINE)


def find_preset(disk: Disk, wanted: str | None = None) -> Preset:
    """Return the first preset of the table that matches the node, or the one of this name.

    Raises:
        InstallError: ``RuntimeNotFound`` or, for a name that no preset has, ``InvalidSpec``.
    """
    if wanted is not None:
        for preset in PRESETS:
            if preset.name == wanted:
                return preset
        names = ", ".join(preset.name for preset in PRESETS)
        raise InstallError(FailureReason.INVALID_SPEC, f"preset {wanted!r} does not exist; use one of {names}")
    os_id = _os_id(disk)
    for preset in PRESETS:
        if preset.os_ids and os_id not in preset.os_ids:
            continue
        if not preset.marks or any(disk.exists(path) for path in preset.marks):
            return preset
    message = (
        f"no containerd was found below {disk.root}: neither /etc/containerd/config.toml nor what k3s, RKE2, k0s or "
        "MicroK8s leave; is the whole root of the node mounted there?"
    )
    raise InstallError(FailureReason.RUNTIME_NOT_FOUND, message)


def inspect(disk: Disk, preset: Preset, runtime: Runtime, run: Run) -> Inspection:
    """Return the present state of the node.

    Raises:
        InstallError: ``ConfigUnreadable`` or ``StateUnreadable``.
    """
    found = sorted(processes.listed(disk), key=lambda process: process.pid)
    main = _main_config(disk, preset, found)
    base, problem = _base(disk, preset)
    layout = Layout(base)
    state = parse_state(disk.read(layout.state), layout.state)
    live = runtime.live()
    imports, imported = _imports(disk, main, live)
    files = _files(disk, preset, (main, *imported), state)
    binaries = _binaries(disk, layout, state)
    # Also for deleted files: their processes are still shims.
    programs = {*binaries, *(shim.path for shim in state.shims.values()), *state.retired}
    executing = _executing(disk, found, programs)
    return Inspection(
        preset=preset,
        config=main,
        arch=ARCHITECTURES.get(platform.machine(), platform.machine()),
        base=base,
        base_problem=problem,
        free_bytes=_free_bytes(disk, base),
        files=files,
        imports=imports,
        imported=imported,
        binaries=binaries,
        running=_running(found, programs, executing),
        executing=executing,
        directories=frozenset(path for path in _folders(layout, preset, imports, state, main) if disk.exists(path)),
        state=state,
        journal=journal_of(disk, base),
        live=live,
        restart=_restart(disk, preset, run),
        has_cgroup_v2=disk.exists(cgroups.CGROUP_V2),
        has_system_bus=disk.exists(cgroups.SYSTEM_BUS),
        exposed=disk.is_exposed(layout.state),
        refusal=parse_refusal(disk.read(refusal.PATH), time.time()),
    )


def journal_of(disk: Disk, base: str) -> Journal | None:
    """Return the journal of an unfinished run, None if there is none."""
    path = Layout(base).journal
    return parse_journal(disk.read(path), path)


def base_of(disk: Disk, preset: Preset) -> str:
    """Return the directory of Trellis on this node, even if it is not writable."""
    return _base(disk, preset)[0]


def _os_id(disk: Disk) -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        found = _OS_ID.search((disk.read(path) or b"").decode(errors="replace"))
        if found:
            return found[1]
    return ""


def _main_config(disk: Disk, preset: Preset, found: Sequence[Process]) -> str:
    """Return the configuration file of containerd: of its command line, unless the distribution generates the file."""
    if preset.config_is_generated:
        return preset.config
    for arguments in (process.arguments for process in found):
        if not arguments or arguments[0].rpartition("/")[2] != "containerd":
            continue
        for position, argument in enumerate(arguments[1:], start=1):
            name, has_value, value = argument.partition("=")
            if name.lstrip("-") not in ("c", "config"):
                continue
            path = value if has_value else "".join(arguments[position + 1 : position + 2])
            if path.startswith("/") and disk.exists(path):
                return path
    return preset.config


def _base(disk: Disk, preset: Preset) -> tuple[str, str]:
    """Return the directory of Trellis, and why it is unusable: the one in use, else the first usable one."""
    for base in preset.base_dirs:
        layout = Layout(base)
        if disk.exists(layout.state) or disk.exists(layout.journal):
            return base, _unusable(disk, base)
    problems = []
    for base in preset.base_dirs:
        problem = _unusable(disk, base)
        if not problem:
            return base, ""
        problems.append(problem)
    return preset.base_dirs[0], "; ".join(problems)


def _unusable(disk: Disk, base: str) -> str:
    near = disk.nearest(base)
    flags = os.statvfs(disk.real(near)).f_flag
    if flags & os.ST_RDONLY:
        return f"{base} is on a read-only file system"
    if flags & os.ST_NOEXEC:
        return f"{base} is on a file system that nothing can be executed from (noexec)"
    if not os.access(disk.real(near), os.W_OK):
        return f"{near} cannot be written by this process"
    return ""


def _free_bytes(disk: Disk, base: str) -> int:
    stats = os.statvfs(disk.real(disk.nearest(base)))
    return stats.f_bavail * stats.f_frsize


def _imports(disk: Disk, main: str, live: Live | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the import patterns of this containerd, as absolute paths, and the matching files, in its order.

    Source: containerd's ``LoadConfig``: the files of a level, each by name, before those that they import themselves; a
    file once. Before 1.6.29 and 1.7.16 a relative pattern matched nothing: only plain relative paths were joined.
    """
    patterns: list[str] = []
    loaded: list[str] = []
    pending = [main]
    for path in pending:
        content = None if path in loaded else disk.read(path)
        if content is None:
            continue
        loaded.append(path)
        listed = config.parse(content.decode("utf-8", "surrogateescape"), path).get("imports")
        folder = path.rpartition("/")[0]
        found = [
            item if item.startswith("/") else f"{folder}/{item.removeprefix('./')}"
            for item in (listed if isinstance(listed, list) else [])
            if isinstance(item, str) and (item.startswith("/") or not has_meta(item) or _joins_patterns(live))
        ]
        patterns += found
        pending += [match for pattern in found for match in disk.matches(pattern)]
    return tuple(dict.fromkeys(patterns)), tuple(path for path in loaded if path != main)


def _joins_patterns(live: Live | None) -> bool:
    numbers = live.numbers if live else ()
    if len(numbers) < 3:
        return True
    return numbers >= ((1, 7, 16) if numbers >= (1, 7) else (1, 6, 29))


def _files(disk: Disk, preset: Preset, read: tuple[str, ...], state: State) -> dict[str, bytes]:
    paths = [*read, *state.configs]
    if preset.style is Style.TEMPLATE:
        paths += [f"{read[0].rpartition('/')[0]}/{name}" for name in _TEMPLATES]
    if preset.dropins:
        paths += disk.matches(f"{preset.dropins}/*.toml")
    for leftover in LEFTOVERS:
        paths += [path for path in (leftover.lock_file, leftover.marker) if path]
    contents = ((path, disk.read(path)) for path in dict.fromkeys(paths))
    return {path: content for path, content in contents if content is not None}


def _binaries(disk: Disk, layout: Layout, state: State) -> dict[str, str]:
    paths = [shim.path for shim in state.shims.values()] + list(state.retired)
    for folder in (layout.bin, *(folder for leftover in LEFTOVERS for folder in leftover.bin_dirs)):
        paths += disk.matches(f"{folder}/containerd-shim-*")
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        digest = disk.sha256(path)
        if digest is not None:
            # A file that cannot be executed counts as damaged.
            found[path] = digest if os.access(disk.real(path), os.X_OK) else ""
    return found


def _folders(layout: Layout, preset: Preset, imports: tuple[str, ...], state: State, main: str) -> Iterator[str]:
    dropins = (path.rpartition("/")[0] for path in map(imported_name, imports) if path)
    lasting = (folder for leftover in LEFTOVERS for folder in leftover.bin_dirs)
    for folder in (layout.bin, layout.own, preset.dropins, main.rpartition("/")[0], *dropins, *lasting):
        parts = folder.split("/")
        yield from ("/".join(parts[:depth]) for depth in range(2, len(parts) + 1))
    yield from state.directories


def _running(
    found: Sequence[Process], programs: Iterable[str], executing: Mapping[str, tuple[Process, ...]]
) -> dict[str, tuple[int, ...]]:
    running: dict[str, tuple[int, ...]] = {}
    for path in programs:
        matching = [process for process in found if path in (process.executable, *process.arguments[:1])]
        if numbers := {process.pid for process in (*matching, *executing.get(path, ()))}:
            running[path] = tuple(sorted(numbers))
    return running


def _executing(disk: Disk, found: Sequence[Process], programs: Iterable[str]) -> dict[str, tuple[Process, ...]]:
    executing = {path: processes.running(disk, path, found) for path in programs}
    return {path: those for path, those in executing.items() if those}


def _restart(disk: Disk, preset: Preset, run: Run) -> RestartCommand | None:
    for way in preset.restarts:
        if not _usable(disk, way):
            continue
        names = list(dict.fromkeys(found.rpartition("/")[2] for need in way.needs for found in disk.matches(need)))
        if not names:
            continue
        name = _active(names, run) if way.kind == "systemd" else names[0]
        return RestartCommand(way.kind, tuple(part.replace("{}", name) for part in way.command))
    return None


def _usable(disk: Disk, way: Restart) -> bool:
    systemd = disk.exists(SYSTEMD_BOOTED)
    match way.kind:
        case "systemd":
            return systemd
        case "openrc":
            return not systemd and disk.exists(OPENRC_BOOTED)
        case _:
            return not systemd


def _active(units: list[str], run: Run) -> str:
    """Return the active unit if a package has several (RKE2's server and agent), else the first."""
    if len(units) > 1:
        for unit in units:
            if run(("systemctl", "is-active", "--quiet", unit), _COMMAND_SECONDS).ok:
                return unit
    return units[0]

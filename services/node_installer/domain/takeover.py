"""Handles the shims and records of another installer after the adoption of their handlers.

Pure: an inspection and adoptions in, actions out. Called by ``plan`` and ``removal``.
Invariant: a shim that still runs pods stays until no process runs it, because containerd calls it by its path to clean
up after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from node_installer.domain import target
from node_installer.domain.actions import Action, Reason, RemoveDirectory, RemoveFile, WriteFile
from node_installer.domain.edits import Adoption
from node_installer.domain.inspection import Inspection
from node_installer.domain.presets import Style
from trellis.installer_api.json_text import read_json


def after(
    found: Inspection, aim: target.Target, adoptions: list[Adoption], retired: tuple[str, ...]
) -> tuple[list[Action], list[Action], tuple[str, ...]]:
    """Return the removals before and after the restart, and the former shims that stay because they run."""
    early: list[Action] = []
    late: list[Action] = []
    kept: list[str] = []
    deleted: set[str] = set()
    for path in retired:
        # A template's base would define the handler a second time as long as the former shim can be found.
        found_by_base = aim.style is Style.TEMPLATE and any(
            item.binary == path and not item.files for item in adoptions
        )
        if found_by_base or path not in found.running:
            message = "its handler was adopted, and no process runs it any more"
            (early if found_by_base else late).append(RemoveFile(path, Reason.ADOPTED, message))
            deleted.add(path)
        else:
            kept.append(path)
    late += _other_state(found, adoptions, deleted)
    return early, late, tuple(kept)


def _other_state(found: Inspection, adoptions: list[Adoption], removed: set[str]) -> list[Action]:
    """Return the edits of the records of other installers, for the adopted handlers."""
    actions: list[Action] = []
    for leftover in dict.fromkeys(adoption.leftover for adoption in adoptions):
        content = found.files.get(leftover.lock_file)
        if content is not None:
            names = {adoption.handler for adoption in adoptions if adoption.leftover == leftover}
            actions += _without_lock(leftover.lock_file, content, names)
        others = [
            path for path in found.binaries if path.rpartition("/")[0] in leftover.bin_dirs and path not in removed
        ]
        if leftover.marker in found.files and not others:
            actions.append(RemoveFile(leftover.marker, Reason.ADOPTED, f"the last shim of {leftover.name} is adopted"))
    return actions


def _without_lock(path: str, content: bytes, names: set[str]) -> list[Action]:
    try:
        value = read_json(content)
        shims = {name: item for name, item in value["shims"].items() if name not in names}
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    if not shims:
        return [RemoveFile(path, Reason.ADOPTED, "its last shim is adopted")]
    new = json.dumps({**value, "shims": shims}, indent=1).encode()
    return [WriteFile(path, new, Reason.ADOPTED, f"adopted: {', '.join(sorted(names))}")]


def empty_folders(adoptions: Iterable[Adoption], kept: tuple[str, ...]) -> tuple[Action, ...]:
    """Return the removals of other installers' directories, if these are empty."""
    if kept:
        return ()
    folders = [
        folder
        for leftover in dict.fromkeys(adoption.leftover for adoption in adoptions)
        for bin_dir in leftover.bin_dirs
        for folder in (bin_dir, bin_dir.rpartition("/")[0])
    ]
    return tuple(RemoveDirectory(folder, Reason.ADOPTED, "only if it is empty") for folder in folders)

"""Asks the user before the demo changes their cluster.

In: flags, the environment, the kubeconfig. Out: the context and nodes, or None for a local cluster. Called by the
demo. Invariant: without confirmation by flag or at the terminal, nothing is written to that cluster.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

import provisioner.settings
from trellis.config.settings import SettingsError, load
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import NODES
from trellis.read_model.reading.leaders import read_leadership
from trellis_cli.common.errors import CommandError
from trellis_cli.common.gather import connected
from trellis_cli.common.settings import ClientSettings, client_settings
from trellis_cli.status.command import LED

_HOME_KUBECONFIG: Final = "~/.kube/config"
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Chosen:
    """A cluster of the user, and the nodes to provision."""

    settings: ClientSettings
    context: str
    nodes: tuple[str, ...]


def choose(nodes: Sequence[str], *, use_current_context: bool, keep: bool, yes: bool) -> Chosen | None:
    """Return the context and nodes; None means a local cluster.

    Raises:
        SettingsError: the flags contradict each other, or there is no terminal to ask at.
        CommandError: the user declined, a node does not exist, or Trellis already runs in that cluster.
        KubeError: the cluster cannot be reached.
    """
    if not use_current_context:
        if nodes:
            raise SettingsError("--node: needs --use-current-context; the nodes of a local cluster are simulated")
        return None
    if keep:
        raise SettingsError("--keep: applies to local clusters only; in your own cluster, the nodes stay provisioned")
    settings = client_settings()
    installer = load(provisioner.settings.Settings)
    server = asyncio.run(_look(settings, nodes))
    chosen = Chosen(settings, _context_of(settings), tuple(dict.fromkeys(nodes)))
    if not yes:
        _ask(chosen, server, installer)
    return chosen


def plan_of(chosen: Chosen, server: str, installer: provisioner.settings.Settings) -> str:
    """Return the planned changes, for confirmation by the user."""
    image = installer.installer_image or installer.node_installer_image
    return "\n".join(
        [
            f"The demo changes context {chosen.context} ({server}):",
            f"  creates the namespaces {installer.namespace} and {installer.installer_namespace} if they are missing",
            f"  annotates {', '.join(chosen.nodes)} with kwasm.sh/kwasm-node=true",
            f"  runs privileged installer Jobs there, with the node's disk mounted: {image}",
            f"  at most {installer.max_unavailable} of the nodes at a time; their container runtime may restart",
        ]
    )


def _ask(chosen: Chosen, server: str, installer: provisioner.settings.Settings) -> None:
    if not sys.stdin.isatty():
        raise SettingsError("--use-current-context: no terminal for the confirmation: add --yes to confirm")
    sys.stderr.write(f"{plan_of(chosen, server, installer)}\nContinue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("cancelled: nothing was changed")


async def _look(settings: ClientSettings, nodes: Sequence[str]) -> str:
    """Return the address of the server; check that the nodes exist and that Trellis does not run in the cluster."""
    async with connected(settings) as kube:
        known = sorted(str(node["metadata"]["name"]) for node in (await kube.list(NODES)).items)
        shown = ", ".join(known[:_NAMES_SHOWN]) + (", …" if len(known) > _NAMES_SHOWN else "")
        if not nodes:
            raise SettingsError(f"--node: is not given, needs a node to provision; the cluster has: {shown}")
        if missing := [name for name in nodes if name not in known]:
            raise SettingsError(f"--node: has {missing[0]!r}, which does not exist; the cluster has: {shown}")
        for service in LED:
            await _refuse_if_led(kube, service, settings.namespace)
        return kube.server


async def _refuse_if_led(kube: Kube, service: str, namespace: str) -> None:
    try:
        lead = await read_leadership(kube, service, namespace, datetime.now(UTC))
    except NotFound:
        return
    if lead.holder and lead.age is not None and lead.age <= lead.duration:
        raise CommandError(
            f"Trellis runs in this cluster already ({service} is led by {lead.holder}): "
            "annotate a node and run `trellis nodes`"
        )


def _context_of(settings: ClientSettings) -> str:
    """Return the name of the current context: as with kubectl, that of the first kubeconfig with one."""
    if settings.context:
        return settings.context
    paths = str(settings.kubeconfig or _HOME_KUBECONFIG).split(os.pathsep)
    for path in (Path(part).expanduser() for part in paths if part):
        if path.is_file():
            config: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
            if isinstance(config, dict) and config.get("current-context"):
                return str(config["current-context"])
    return "of this pod's service account"

"""Chooses the cgroup driver of a shim's containers, if its Shim does not.

Pure: an inspection in, options and warnings out. Called by ``plan``.
Source: a shim of runwasi 0.10 or later takes the driver from its option ``SystemdCgroup``, cgroupfs by default. On a
node whose driver is systemd, cgroupfs creates a cgroup at the root: the container is outside the limits and the metrics
of its pod (runwasi#821). With the driver systemd, a shim needs the D-Bus socket of the node, and cgroup v2: with v1 it
ignores the option. containerd passes the text of options to shims since 1.7; a shim that gets options without their
text starts no container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from node_installer.domain.inspection import Inspection
from node_installer.domain.state import ShimState
from trellis.installer_api.spec import WantedShim

SYSTEM_BUS: Final = "/var/run/dbus/system_bus_socket"
CGROUP_V2: Final = "/sys/fs/cgroup/cgroup.controllers"
"""Exists with cgroup v2, but not with v1, also if a hierarchy of v2 is below."""
_OPTION: Final = "SystemdCgroup"


def options_of(found: Inspection, wanted: WantedShim, known: ShimState | None) -> dict[str, str]:
    """Return the options of a shim: those of its Shim, with the cgroup driver of the node's default runtime."""
    options = dict(wanted.runtime_options)
    if found.live is None:  # too busy to answer: no reason for another configuration
        systemd = known is not None and _OPTION in known.options
    else:
        systemd = found.live.systemd_cgroup and not _obstacle(found)
    return {_OPTION: "true", **options} if systemd else options


def warnings(found: Inspection, shims: Mapping[str, ShimState], wanted: Iterable[WantedShim]) -> tuple[str, ...]:
    """Return a warning if containers of these shims are not in the cgroups of their pods."""
    if found.live is None or not found.live.systemd_cgroup:
        return ()
    outside = [item.handler for item in wanted if _OPTION not in shims[item.handler].options]
    if not outside:
        return ()
    return (f"containers of {', '.join(outside)} are outside the cgroups of their pods: {_obstacle(found)}",)


def _obstacle(found: Inspection) -> str:
    """Return why shims cannot use systemd on this node, "" if they can."""
    if found.live is not None and found.live.numbers < (1, 7):
        return f"containerd {found.live.version} does not pass options to shims; 1.7 does"
    if not found.has_cgroup_v2:
        return "the node has cgroup v1, where shims cannot use systemd"
    return "" if found.has_system_bus else f"the node has no D-Bus socket {SYSTEM_BUS}"

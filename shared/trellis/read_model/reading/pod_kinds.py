"""Kinds with a page about Wasm pods.

Pure, and without the modules of these pages: each start of the command line imports this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    SPIN_APPS,
    STATEFUL_SETS,
    Resource,
)

RESOURCES: Final[Mapping[str, Resource]] = {
    "pod": PODS,
    "deployment": DEPLOYMENTS,
    "statefulset": STATEFUL_SETS,
    "daemonset": DAEMON_SETS,
    "job": JOBS,
    "cronjob": CRON_JOBS,
    "spinapp": SPIN_APPS,
}
KINDS: Final = tuple(RESOURCES)
"""Their names."""

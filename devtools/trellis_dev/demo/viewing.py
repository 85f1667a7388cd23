"""The console of a kept demo: a separate process under its own account, and a read-only account for the login.

In: the cluster of the demo. Out: the process of the console, its address, and the command that creates a token.
Called by the demo. Invariants: no token is created, printed or logged here; the account can read the objects on the
pages but no Secrets.
"""

from __future__ import annotations

import asyncio
import http
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from console.http.assets import DIRECTORY
from trellis.kube.resources import (
    APPLICATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    ENDPOINT_SLICES,
    EVENTS,
    HOST_CONFIGS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    WASMCLOUD_V2,
    Resource,
)
from trellis_cli.common.errors import CommandError
from trellis_cli.common.messages import print_note
from trellis_dev.demo.services import Services
from trellis_dev.localcluster import ClusterInfo, LocalClusterError, page
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.progress import on_stderr

ACCOUNT: Final = "demo-viewer"
TOKEN_HOURS: Final = 8
CHECKOUT: Final = DIRECTORY.parents[2]
"""Directory of the sources, if this is not an installed package."""
READ: Final[tuple[Resource, ...]] = (
    NODES, NAMESPACES, PODS, CONFIGMAPS, SERVICES, EVENTS, JOBS, LEASES, RUNTIME_CLASSES, ENDPOINT_SLICES, SHIMS,
    HOST_CONFIGS, APPLICATIONS, WASM_CONTROLLERS, *WASMCLOUD_V2,
)  # fmt: skip
"""The resources that the pages and their explanations are built from."""
_UI: Final = "jaeger-ui-root"
"""Element of Jaeger's web page. A Jaeger that was built from its Go module serves a placeholder without it."""
_UI_SECONDS: Final = aiohttp.ClientTimeout(total=5.0)
_RBAC: Final = "rbac.authorization.k8s.io"
_LOOK: Final = ["get", "list", "watch"]
_OF_CONSOLE: Final = {
    "apiGroups": ["console.trellis.dev"],
    "resources": ["traces", "messages", "lattices"],
    "verbs": ["get"],
}


@dataclass(frozen=True, slots=True)
class Page:
    """Address of the console, and the command for a login token; ``jaeger``: address of Jaeger's web pages, if any.

    ``traces``: whether the console shows traces.
    """

    url: str
    log_in: tuple[str, ...]
    jaeger: str | None = None
    traces: bool = False

    def trace(self, trace_id: str) -> str | None:
        """Return the address of the page of a trace, in Jaeger if it has pages; None if nothing stores traces."""
        if self.jaeger is not None:
            return f"{self.jaeger}/trace/{trace_id}"
        return f"{self.url}/traces?trace={trace_id}" if self.traces else None


def make_viewer(namespace: str) -> list[tuple[Resource, dict[str, Any]]]:
    """Return the login account and its permissions."""
    rules = [{"apiGroups": [item.group], "resources": [item.plural], "verbs": _LOOK} for item in READ]
    return [
        (SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT, "namespace": namespace}}),
        (CLUSTER_ROLES, {"metadata": {"name": ACCOUNT}, "rules": [*rules, _OF_CONSOLE]}),
        (
            CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": _RBAC, "kind": CLUSTER_ROLES.kind, "name": ACCOUNT},
                "subjects": [{"kind": SERVICE_ACCOUNTS.kind, "name": ACCOUNT, "namespace": namespace}],
            },
        ),
    ]


def log_in(kubectl: Path, kubeconfig: Path, namespace: str) -> tuple[str, ...]:
    """Return the command that prints a token of that account."""
    arguments = f"--namespace {namespace} create token {ACCOUNT} --duration {TOKEN_HOURS}h".split()
    return (str(kubectl), "--kubeconfig", str(kubeconfig), *arguments)


async def ready_page() -> None:
    """Build the page of the console if this is a checkout; on failure the demo continues without it."""
    if not (CHECKOUT / page.SOURCES).is_dir():
        return  # installed: the package contains the page
    abort = threading.Event()
    try:
        with on_stderr() as progress:
            await asyncio.to_thread(page.build_page, CHECKOUT, How(progress, abort))
    except LocalClusterError as error:
        print_note(f"the page of the console is missing or outdated: {error}")
    finally:
        abort.set()


async def open_console(info: ClusterInfo, console: Services, namespace: str) -> Page:
    """Create the account and start the console on a free loopback port.

    Raises:
        CommandError: the API server rejects the account, or the console does not become ready.
    """
    await asyncio.to_thread(_write, info, make_viewer(namespace))
    (port,) = free_ports(1)
    traces = {"TRELLIS_JAEGER_URL": info.jaeger_url} if info.jaeger_url else {}
    jaeger = info.jaeger_url if info.jaeger_url and await has_pages(info.jaeger_url) else None
    if jaeger is not None:
        traces["TRELLIS_JAEGER_LINK"] = jaeger
    await console.start(TRELLIS_CONSOLE_PORT=str(port), TRELLIS_CONSOLE_ADDRESS=LOOPBACK, **traces)
    command = log_in(info.bin_dir / "kubectl", info.kubeconfig, namespace)
    return Page(f"http://{LOOPBACK}:{port}", command, jaeger, bool(traces))


async def has_pages(jaeger: str) -> bool:
    """Return whether a Jaeger serves its web pages."""
    try:
        async with aiohttp.ClientSession(timeout=_UI_SECONDS) as session, session.get(f"{jaeger}/search") as answer:
            return _UI in await answer.text()
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
        return False


def _write(info: ClusterInfo, wanted: Sequence[tuple[Resource, dict[str, Any]]]) -> None:
    api = Api.of_kubeconfig(info.kubeconfig)
    try:
        for res, manifest in wanted:
            status, answer = api.call("POST", res.path(manifest["metadata"].get("namespace")), manifest)
            if status not in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
                raise CommandError(
                    f"the API server rejects {res.kind} {ACCOUNT} for the login ({status}): {answer.get('message', '')}"
                )
    except OSError as error:
        raise CommandError(f"the login account cannot be created: {error}") from error
    finally:
        api.close()

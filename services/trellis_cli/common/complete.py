"""Completes kinds and names of objects in a shell.

In: the words before the cursor. Out: candidates. Called by the completion of arguments. Invariant: it ends within two
seconds and never fails; without a cluster there are no candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import typer

from trellis_cli.common.objects import read_kind

_SECONDS: Final = 2.0
_MOST: Final = 500
"""Names of one page of a list."""
_NAMESPACE: Final = "namespace"
_SHIM: Final = "shim"
"""The kind, and the argument of commands about one Shim."""
Complete: TypeAlias = Callable[[typer.Context, str], list[str]]
"""Returns the candidates for the last word."""


def complete_shim(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of Shims: ``NAME``, ``shim NAME`` and ``shim/NAME``."""
    given, (kind, slash, _) = list(ctx.params.get(_SHIM) or ()), incomplete.partition("/")
    if slash:
        found = [f"{kind}/{name}" for name in names_of(kind, ctx, (_SHIM,))]
    else:
        found = names_of(given[0] if given else _SHIM, ctx, (_SHIM,)) if len(given) <= 1 else []
    return [item for item in found if item.startswith(incomplete)]


def complete_application(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of applications."""
    return [name for name in names_of("application", ctx) if name.startswith(incomplete)]


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of namespaces."""
    return [name for name in names_of(_NAMESPACE, ctx) if name.startswith(incomplete)]


def complete_word(accepted: Iterable[str]) -> Complete:
    """Return the completion of an argument that accepts only these words."""
    words = [*accepted]

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        del ctx
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_object(accepted: Iterable[str]) -> Complete:
    """Return the completion of kinds, and after a kind of names of its objects: ``KIND NAME`` and ``KIND/NAME``."""
    kinds = [*accepted]

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        arguments = list(ctx.params.get("what") or ())
        kind, slash, _ = incomplete.partition("/")
        if arguments:
            found = names_of(arguments[0], ctx, kinds) if len(arguments) == 1 else []
        elif slash:
            found = [f"{kind}/{name}" for name in names_of(kind, ctx, kinds)]
        else:
            found = kinds
        return [item for item in found if item.startswith(incomplete)]

    return complete


def names_of(word: str, ctx: typer.Context, accepted: Iterable[str] = ()) -> list[str]:
    """Return the names of the objects of a kind; none if they cannot be listed in time.

    ``accepted``: names of kinds, one of which the word means; without any, the word is such a name.
    """
    try:
        return sorted(asyncio.run(asyncio.wait_for(_listed(word, ctx.params, [*accepted]), _SECONDS)))
    except Exception:  # noqa: BLE001 - a shell shows no errors during completion
        return []


async def _listed(word: str, given: dict[str, Any], accepted: list[str]) -> list[str]:
    # Slow imports, only for completion.
    from trellis.kube import resources  # noqa: PLC0415
    from trellis.kube.reader import Selection  # noqa: PLC0415
    from trellis_cli.common.gather import connected  # noqa: PLC0415
    from trellis_cli.common.settings import client_settings  # noqa: PLC0415

    listed = {
        _NAMESPACE: resources.NAMESPACES,
        "node": resources.NODES,
        _SHIM: resources.SHIMS,
        "hostgroup": resources.HOST_CONFIGS,
        "application": resources.APPLICATIONS,
        "service": resources.SERVICES,
        "controller": resources.WASM_CONTROLLERS,
        "secretgrant": resources.SECRET_GRANTS,
        "workloaddeployment": resources.WORKLOAD_DEPLOYMENTS,
        "workload": resources.WORKLOADS,
        "whost": resources.WASM_HOSTS,
        "artifact": resources.ARTIFACTS,
        "pod": resources.PODS,
        "deployment": resources.DEPLOYMENTS,
        "statefulset": resources.STATEFUL_SETS,
        "daemonset": resources.DAEMON_SETS,
        "job": resources.JOBS,
        "cronjob": resources.CRON_JOBS,
        "spinapp": resources.SPIN_APPS,
    }
    resource = listed[read_kind(word, accepted) if accepted else word]
    settings = client_settings(kubeconfig=given.get("kubeconfig"), context=given.get("context"))
    async with connected(settings) as kube:
        namespace = None if word == _NAMESPACE else given.get("namespace")
        async for page in kube.pages(Selection(resource, namespace), limit=_MOST):
            return [str(item["metadata"]["name"]) for item in page.items]
    return []

"""Options shared by many commands: the cluster, the namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trellis.config.errors import SettingsError

KubeconfigOption = Annotated[Path | None, typer.Option(help="kubeconfig file [env: TRELLIS_KUBECONFIG]")]
ContextOption = Annotated[str | None, typer.Option(help="context of the kubeconfig [env: TRELLIS_CONTEXT]")]

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="namespace of the objects; default: all")
]
AllNamespacesOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="objects of all namespaces")]


def one_namespace(namespace: str | None, *, all_namespaces: bool) -> str | None:
    """Return the namespace to read, None for all. Raise SettingsError if both options are given."""
    if namespace is not None and all_namespaces:
        raise SettingsError("--all-namespaces: --namespace is given too, use one of them")
    return namespace

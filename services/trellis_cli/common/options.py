"""Options shared by many commands: the cluster, the namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trellis.config.errors import SettingsError
from trellis_cli.common.complete import complete_namespace

KubeconfigOption = Annotated[Path | None, typer.Option(help="kubeconfig file [env: TRELLIS_KUBECONFIG, KUBECONFIG]")]
ContextOption = Annotated[str | None, typer.Option(help="context of the kubeconfig [env: TRELLIS_CONTEXT]")]

NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAMESPACE",
        help="namespace of the objects; default: all",
        autocompletion=complete_namespace,
    ),
]
LatticeNatsOption = Annotated[
    str | None,
    typer.Option("--nats", metavar="URL", help="NATS server of the lattice; default: that of its host groups"),
]
AllNamespacesOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="objects of all namespaces")]


def one_namespace(namespace: str | None, *, all_namespaces: bool) -> str | None:
    """Return the namespace to read, None for all. Raise SettingsError if both options are given."""
    if namespace is not None and all_namespaces:
        raise SettingsError("--all-namespaces: --namespace is given too, use one of them")
    return namespace

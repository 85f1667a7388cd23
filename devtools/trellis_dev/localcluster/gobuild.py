"""Builds programs from Go modules into the cache: Kubernetes, kwok, Jaeger, containerd, CoreDNS, operators, Vale.

In: a product of ``versions.toml`` and the tools wanted of it. Out: programs under their final names in the cache.
Called by the tool search when nothing on the machine fits.

`go install` refuses modules with `replace` lines, so each product is built from a small module made for it, which
repeats these lines; folders that are modules of their own are taken as published (Kubernetes' staging folders: v1.36.3
↔ v0.36.3).
Integrity: Go compares every module it downloads with the product's own go.sum and with its public checksum database;
the product's own module is compared with the hash in ``versions.toml`` besides, which fixes its go.mod and go.sum and
so the version of everything below. Invariant: a name in the cache is a complete program (temporary name, rename), and
two processes that want the same product build it once (file lock).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from trellis_dev.localcluster.building import acquire
from trellis_dev.localcluster.crates import source_file
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gotoolchain import Go, c_compilers, go_program
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Progress, stepping
from trellis_dev.localcluster.versions import Product, products

_KUBERNETES_VERSION: Final = "k8s.io/component-base/version"
_MODULE: Final = "trellis.invalid/build"


@dataclass(frozen=True)
class Recipe:
    """Which packages of a product's module give which tool, and what the linker writes into them."""

    packages: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    own_path: bool = True
    """Whether Go may ask the proxy for modules at the packages' own paths; some proxies refuse what they lack."""
    cgo: bool = False
    """Whether the packages contain C and C++, so that the build needs compilers of these."""
    source: str = ""
    """Folder of a program of ours that uses the product, a library; then ``packages`` has one tool."""


RECIPES: Final[dict[str, Recipe]] = {
    "kubernetes": Recipe(
        packages={
            tool: f"cmd/{tool}"
            for tool in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
            )
        },
        # Without these the server reports v0.0.0, and clients refuse it.
        variables={
            f"{_KUBERNETES_VERSION}.gitVersion": "v{version}",
            f"{_KUBERNETES_VERSION}.gitMajor": "{major}",
            f"{_KUBERNETES_VERSION}.gitMinor": "{minor}",
        },
    ),
    "kwok": Recipe(packages={"kwok": "cmd/kwok"}),
    "nats": Recipe(packages={"nats": "nats"}, own_path=False),
    "jaeger": Recipe(
        packages={"jaeger": "cmd/all-in-one"},
        variables={"github.com/jaegertracing/jaeger/pkg/version.latestVersion": "v{version}"},
    ),
    "containerd": Recipe(
        packages={tool: f"cmd/{tool}" for tool in ("containerd", "containerd-shim-runc-v2", "ctr")},
        variables={"github.com/containerd/containerd/v2/version.Version": "v{version}"},
    ),
    "kubeconform": Recipe(packages={"kubeconform": "cmd/kubeconform"}, variables={"main.version": "v{version}"}),
    "prometheus": Recipe(
        packages={"promtool": "cmd/promtool"},
        variables={"github.com/prometheus/common/version.Version": "{version}"},
    ),
    "coredns": Recipe(packages={"coredns": ""}),  # the module's root is the program
    "keda": Recipe(
        packages={"keda": "cmd/operator", "keda-adapter": "cmd/adapter"},
        variables={"github.com/kedacore/keda/v2/version.Version": "{version}"},
    ),
    "metrics-server": Recipe(packages={"metrics-server": "cmd/metrics-server"}),
    "source-controller": Recipe(packages={"source-controller": ""}),
    "kustomize-controller": Recipe(packages={"kustomize-controller": ""}),
    "argo-cd": Recipe(
        packages={"argocd": "cmd"}, variables={"github.com/argoproj/argo-cd/v3/common.version": "{version}"}
    ),
    "kustomize": Recipe(
        packages={"kustomize": ""}, variables={"sigs.k8s.io/kustomize/api/provenance.version": "v{version}"}
    ),
    "cert-manager": Recipe(
        packages={
            "cert-manager": "cmd/controller",
            "cert-manager-webhook": "cmd/webhook",
            "cert-manager-cainjector": "cmd/cainjector",
        },
        variables={"github.com/cert-manager/cert-manager/pkg/util.AppVersion": "v{version}"},
    ),
    # Its grammars for source code are in C and C++.
    "vale": Recipe(packages={"vale": "cmd/vale"}, variables={"main.version": "v{version}"}, own_path=False, cgo=True),
    "kstatus": Recipe(packages={"kstatus": ""}, own_path=False, source="kstatus"),
}


def build(product: str, targets: Mapping[str, Path], progress: Progress, abort: threading.Event) -> None:
    """Build the tools that are not in the cache yet; ``targets`` maps each tool to its final name.

    Raises:
        ToolError: if Go is missing and cannot be installed, a download is not what it should be, or a build fails.
        AbortedError: if ``abort`` was set.
    """
    root = cache_root() / "build"
    root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / f"{product}.lock")
    step = f"build {product} {products()[product].version}"
    with stepping(progress, step):
        acquire(lock, step, progress, abort)
        try:
            missing = {tool: path for tool, path in targets.items() if not os.access(path, os.X_OK)}
            if missing:
                _build(product, missing, step, (progress, abort))
        finally:
            lock.release()


def module_folder(product: str, progress: Progress, abort: threading.Event) -> Path:
    """Return the folder with a product's module, downloading it if need be. Read-only.

    Raises:
        ToolError: if it cannot be downloaded or its hash is not the one in ``versions.toml``.
    """
    work = cache_root() / "build" / f"{product}-module-{os.getpid()}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        go = Go(go_program(progress), work, work.with_suffix(".log"), abort)
        return Path(_download(go, products()[product])["Dir"])
    finally:
        shutil.rmtree(work, ignore_errors=True)
        work.with_suffix(".log").unlink(missing_ok=True)


def _build(product: str, targets: Mapping[str, Path], step: str, how: tuple[Progress, threading.Event]) -> None:
    progress, abort = how
    recipe, entry = RECIPES[product], products()[product]
    work = cache_root() / "build" / f"{product}-{entry.version}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    log = work.with_name(f"{work.name}.log")
    log.unlink(missing_ok=True)
    go = Go(go_program(progress), work, log, abort, c_compilers() if recipe.cgo else None)

    progress.note(step, "downloading modules")
    module = _download(go, entry)
    (work / "go.mod").write_text(_go_mod(Path(module["GoMod"]).read_text(encoding="utf-8"), entry.version))
    if (sums := Path(module["Dir"]) / "go.sum").exists():
        (work / "go.sum").write_bytes(sums.read_bytes())  # the checksum database lacks some modules
    packages = {tool: f"{entry.module}/{recipe.packages[tool]}".rstrip("/") for tool in targets}
    if recipe.source:
        packages = dict.fromkeys(targets, _MODULE)
        shutil.copy(source_file(recipe.source, "main.go"), work)
    if recipe.own_path:
        go.run(["get", "-tool", *(f"{package}@v{entry.version}" for package in packages.values())])
    else:
        go.run(["mod", "edit", f"-require={entry.module}@v{entry.version}"])

    major, minor, _ = entry.version.split(".")
    variables = " ".join(
        f"-X {name}={value.format(version=entry.version, major=major, minor=minor)}"
        for name, value in recipe.variables.items()
    )
    (work / "out").mkdir()
    # All of a product in one command: what its programs share is compiled once. -v names each package compiled.
    flags = ["-mod=mod", "-trimpath", "-v", "-ldflags", f"-s -w {variables}", "-o", f"{work / 'out'}{os.sep}"]
    heard = _counting(go, list(packages.values()), log, partial(progress.note, step))
    go.run(["build", *flags, *packages.values()], heard)
    for tool, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        (work / "out" / _program(packages[tool])).replace(target)
    shutil.rmtree(work)
    log.unlink(missing_ok=True)


def _counting(go: Go, packages: Sequence[str], log: Path, note: Callable[[str], None]) -> Callable[[str], None]:
    """Return what notes how many packages were compiled, and of how many; fewer if some are in Go's own cache."""
    total = len(go.run(["list", "-mod=mod", "-deps", *packages]).splitlines())
    before = _lines(log)
    note(f"0 of at most {total} packages")  # with all of them in the cache nothing is heard until it is linked
    return lambda line: note(f"{_lines(log) - before} of at most {total} packages: {line}")


def _program(package: str) -> str:
    """Return what Go calls the program of a package: the end of its path, but for a module's major version."""
    return re.sub(r"/v[0-9]+$", "", package).rpartition("/")[2]


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _download(go: Go, entry: Product) -> dict[str, Any]:
    """Download the product's module, and compare it with the hash in ``versions.toml``."""
    answer: dict[str, Any] = json.loads(go.run(["mod", "download", "-json", f"{entry.module}@v{entry.version}"]))
    if answer["Sum"] != entry.sum:
        raise ToolError(
            f"{entry.module} {entry.version} is not what it should be: its hash is {answer['Sum']}, expected "
            f"{entry.sum}. Look at GOPROXY ({os.environ.get('GOPROXY', 'not set')}) and GONOSUMDB; nothing was built."
        )
    return answer


def _go_mod(upstream: str, version: str) -> str:
    """Return the go.mod of a module that builds the upstream one's programs.

    Its `replace` lines are repeated; one that points to a folder becomes the module published from it: from
    Kubernetes' staging folders under a version of its own, from others under the product's.
    """
    go_line = re.search(r"^go \S+$", upstream, re.MULTILINE)
    if go_line is None:
        raise ToolError("the module's go.mod has no `go` line: its format is not the one known here")
    lines = []
    for old, new in re.findall(r"^(?:replace)?\s*(\S+) => (\S+(?: v\S+)?)$", upstream, re.MULTILINE):
        major = "v0" if new.startswith("./staging/") else f"v{version.partition('.')[0]}"
        lines.append(f"\t{old} => " + (f"{old} {major}.{version.partition('.')[2]}" if new.startswith(".") else new))
    replace = "\nreplace (\n" + "\n".join(lines) + "\n)\n" if lines else ""
    return f"module {_MODULE}\n\n{go_line.group(0)}\n{replace}"

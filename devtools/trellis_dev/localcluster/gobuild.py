"""Builds programs from Go modules into the cache: etcd, Kubernetes, kwok, Jaeger, containerd, operators, release tools.

In: a product of ``versions.toml`` and the requested tools of it. Out: programs under their final names in the cache.
Called by the tool search if this machine has no suitable program.

`go install` rejects modules with `replace` lines, so each product is built from a small generated module, which repeats
these lines; folders that are modules of their own are replaced by their published versions (staging folders of
Kubernetes: v1.36.3 ↔ v0.36.3).
Integrity: Go verifies every downloaded module against the go.sum of the product and its public checksum database;
the module of the product itself is also verified against the hash in ``versions.toml``, which fixes its go.mod and
go.sum and so the versions of all dependencies. Invariant: a program in the cache is complete (temporary name, rename),
and concurrent processes build a product once (file lock).
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
    """Packages of a module per tool, and the variables that the linker sets in them."""

    packages: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    own_path: bool = True
    """True if Go may ask the proxy for modules at the paths of the packages; some proxies reject unknown paths."""
    cgo: bool = False
    """True if the packages contain C and C++, so that the build needs compilers for these."""
    source: str = ""
    """Folder of a Trellis program that uses the product, a library; then ``packages`` has one tool."""


RECIPES: Final[dict[str, Recipe]] = {
    "etcd": Recipe(packages={"etcd": ""}),  # the root package is the program
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
                "kubeadm",
            )
        },
        # Without these the server reports v0.0.0, and clients reject it.
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
    "coredns": Recipe(packages={"coredns": ""}),
    "kind": Recipe(packages={"kind": ""}),
    "local-path-provisioner": Recipe(packages={"local-path-provisioner": ""}),
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
    # Its grammars of programming languages are in C and C++.
    "vale": Recipe(packages={"vale": "cmd/vale"}, variables={"main.version": "v{version}"}, own_path=False, cgo=True),
    "kstatus": Recipe(packages={"kstatus": ""}, own_path=False, source="kstatus"),
    "actionlint": Recipe(
        packages={"actionlint": "cmd/actionlint"}, variables={"github.com/rhysd/actionlint.version": "{version}"}
    ),
    "crane": Recipe(
        packages={"crane": "cmd/crane"},
        variables={"github.com/google/go-containerregistry/cmd/crane/cmd.Version": "v{version}"},
    ),
    "cosign": Recipe(
        packages={"cosign": "cmd/cosign"}, variables={"sigs.k8s.io/release-utils/version.gitVersion": "v{version}"}
    ),
    "distribution": Recipe(
        packages={"registry": "cmd/registry"},
        variables={"github.com/distribution/distribution/v3/version.version": "v{version}"},
    ),
    "oras": Recipe(packages={"oras": "cmd/oras"}, variables={"oras.land/oras/internal/version.Version": "{version}"}),
    "helm": Recipe(packages={"helm": "cmd/helm"}, variables={"helm.sh/helm/v3/internal/version.version": "v{version}"}),
}


def build(product: str, targets: Mapping[str, Path], progress: Progress, abort: threading.Event) -> None:
    """Build the tools that are missing in the cache; ``targets`` maps each tool to its final name.

    Raises:
            ToolError: Go is missing and cannot be installed, a download has a wrong hash, or a build fails.
            AbortedError: ``abort`` was set.
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
    """Return the read-only folder with the module of a product; download it if necessary.

    Raises:
            ToolError: the download failed, or its hash differs from the one in ``versions.toml``.
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
        (work / "go.sum").write_bytes(sums.read_bytes())  # some modules are missing in the checksum database
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
    # One command for the whole product compiles shared packages once. -v prints each compiled package.
    flags = ["-mod=mod", "-trimpath", "-v", "-ldflags", f"-s -w {variables}", "-o", f"{work / 'out'}{os.sep}"]
    on_line = _counting(go, list(packages.values()), log, partial(progress.note, step))
    go.run(["build", *flags, *packages.values()], on_line)
    for tool, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        (work / "out" / _program(packages[tool])).replace(target)
    shutil.rmtree(work)
    log.unlink(missing_ok=True)


def _counting(go: Go, packages: Sequence[str], log: Path, note: Callable[[str], None]) -> Callable[[str], None]:
    """Return a callback that reports the number of compiled packages; fewer if some are in the cache of Go."""
    total = len(go.run(["list", "-mod=mod", "-deps", *packages]).splitlines())
    before = _lines(log)
    note(f"0 of at most {total} packages")  # without output until linking if all are cached
    return lambda line: note(f"{_lines(log) - before} of at most {total} packages: {line}")


def _program(package: str) -> str:
    """Return the name that Go gives the program of a package: the end of its path without a major version."""
    return re.sub(r"/v[0-9]+$", "", package).rpartition("/")[2]


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _download(go: Go, entry: Product) -> dict[str, Any]:
    """Download the module of the product, and verify it against the hash in ``versions.toml``."""
    answer: dict[str, Any] = json.loads(go.run(["mod", "download", "-json", f"{entry.module}@v{entry.version}"]))
    if answer["Sum"] != entry.sum:
        raise ToolError(
            f"{entry.module} {entry.version} has hash {answer['Sum']}, expected "
            f"{entry.sum}. Check GOPROXY ({os.environ.get('GOPROXY', 'not set')}) and GONOSUMDB; nothing was built."
        )
    return answer


def _go_mod(upstream: str, version: str) -> str:
    """Return the go.mod of a module that builds the programs of the upstream module.

    Its `replace` lines are repeated; a replacement by a folder becomes the published module, if there is one.
    """
    go_line = re.search(r"^go \S+$", upstream, re.MULTILINE)
    if go_line is None:
        raise ToolError("the module's go.mod has no `go` line: unsupported format")
    lines = []
    for old, new in re.findall(r"^(?:replace)?\s*(\S+) => (\S+(?: v\S+)?)$", upstream, re.MULTILINE):
        if not new.startswith("."):
            lines.append(f"\t{old} => {new}")
        elif (published := _published_version(old, new, version)) is not None:
            lines.append(f"\t{old} => {old} {published}")
    replace = "\nreplace (\n" + "\n".join(lines) + "\n)\n" if lines else ""
    return f"module {_MODULE}\n\n{go_line.group(0)}\n{replace}"


def _published_version(module: str, folder: str, version: str) -> str | None:
    """Return the version of a module that is a folder of the product; None if no such version can exist.

    Staging folders of Kubernetes have their own version, other folders that of the product. Go rejects v2 and later for
    a path without that number: go.mod of etcd replaces such a path by a missing folder, so that importing it fails.
    """
    major, _, rest = version.partition(".")
    if folder.startswith("./staging/"):
        return f"v0.{rest}"
    return f"v{version}" if major in {"0", "1"} or module.endswith(f"/v{major}") else None

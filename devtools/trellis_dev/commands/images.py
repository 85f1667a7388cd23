"""Implements `trellis dev image`; imported only when the command runs.

In: a checkout, the name of a cluster. Out: the images in the cache, on the real nodes of the cluster, and optionally
as files; image names and installation commands on standard output. Called by :mod:`trellis_dev.commands.dev`.
Invariants: stopped nodes and clusters without real nodes are reported; the values of the chart refer to the images that
were built, and have the checksum of the runtime in the installer's image.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path
from typing import Any

import typer
import yaml

from trellis_cli.common.output import Format, print_document
from trellis_dev.commands.local import reporting_errors
from trellis_dev.localcluster import ClusterInfo, LocalClusterError, cluster, requirements
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import NATS, architecture, nats_image
from trellis_dev.localcluster.own_images import INSTALLER, SERVICES, documents, own_image, require_checkout
from trellis_dev.localcluster.progress import on_stderr
from trellis_dev.localcluster.realnode_faults import load_image
from trellis_dev.localcluster.wasmshim import shim

_OWN = (SERVICES, INSTALLER)


def build(checkout: Path, name: str, export: Path | None, output: Format) -> None:
    """Build the images, load and export them, and print their locations."""
    with reporting_errors("building the images"), on_stderr() as progress:
        require_checkout(checkout.resolve())
        requirements.require()
        how = How(progress, threading.Event())
        archives = {image.name: own_image(image, checkout.resolve(), how) for image in _OWN}
        archives[NATS] = nats_image(how)
        nodes = _load(name, list(archives.values()))
        values = chart_values(hashlib.sha256(shim(how).read_bytes()).hexdigest())
        if export is not None:
            _export(archives, values, export)
    if output.structured:
        images = {image: str(path) for image, path in archives.items()}
        print_document(output, {"images": images, "nodes": nodes, "values": values})
    else:
        typer.echo(_summary(archives, name, nodes, values))


def chart_values(runtime: str) -> dict[str, Any]:
    """Return the values of the chart for the images; ``runtime``: SHA-256 of the runtime in the installer's image."""
    return {
        "image": _image(SERVICES.name),
        "installers": {"image": _image(INSTALLER.name)},
        "defaultShim": {"sha256": {architecture(): runtime}},
    }


def _image(full: str) -> dict[str, str]:
    """Return the values of an image ``<registry>/<repository>:<tag>``."""
    name, _, tag = full.rpartition(":")
    registry, _, repository = name.partition("/")
    return {"registry": registry, "repository": repository, "tag": tag}


def _load(name: str, archives: list[Path]) -> list[str]:
    """Load the images on each real node of the cluster, if there is one; return the names of the nodes."""
    nodes = [node.name for found in cluster.status() if found.name == name for node in found.real_nodes]
    for node in nodes:
        for archive in archives:
            load_image(name, node, archive)
    return nodes


def _export(archives: dict[str, Path], values: dict[str, Any], target: Path) -> None:
    """Write each image with its SBOM, licences and the package list of its base, and ``values.yaml`` for the chart.

    Raises:
        LocalClusterError: if the directory cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        for image in _OWN:
            short = image.name.rpartition("/")[2].partition(":")[0]
            shutil.copyfile(archives[image.name], target / f"{short}.tar")
            for file, content in documents(archives[image.name]).items():
                (target / f"{short}.{file}").write_bytes(content)
        (target / "values.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise LocalClusterError(f"--export: {target} cannot be written: {error.strerror}") from error


def _summary(archives: dict[str, Path], name: str, nodes: list[str], values: dict[str, Any]) -> str:
    lines = [f"{image:<32} {path}" for image, path in archives.items()]
    lines.append(f"On the nodes {', '.join(nodes)} of cluster '{name}'." if nodes else _nowhere(name))
    sums = values["defaultShim"]["sha256"]
    lines += [
        "Install the chart with these images, with a NATS without authentication and volume:",
        "  kubectl create namespace trellis-system",
        f"  kubectl run bus --namespace trellis-system --image {NATS} --port 4222 --expose -- --jetstream",
        "  helm install trellis deploy/helm/trellis --namespace trellis-system \\",
        f"    {_options('image', values['image'])} \\",
        f"    {_options('installers.image', values['installers']['image'])} \\",
        *(f"    --set defaultShim.sha256.{arch}={runtime} \\" for arch, runtime in sums.items()),
        "    --set nats.enabled=false --set nats.url=nats://bus.trellis-system:4222",
    ]
    return "\n".join(lines)


def _options(value: str, image: dict[str, str]) -> str:
    """Return the options of Helm that set an image of the chart."""
    registry, repository, tag = image["registry"], image["repository"], image["tag"]
    return f"--set {value}.registry={registry},{value}.repository={repository} --set-string {value}.tag={tag}"


def _nowhere(name: str) -> str:
    named = "" if name == "default" else f" --name {name}"
    found: list[ClusterInfo] = [status for status in cluster.status() if status.name == name]
    reason = f"cluster '{name}' has no real nodes" if found else f"there is no cluster '{name}'"
    return f"Not loaded: {reason}; run `trellis dev up{named} --real-node`, then retry. Or: docker load --input ARCHIVE"

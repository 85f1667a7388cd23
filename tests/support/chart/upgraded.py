"""The chart as Helm renders it beside the objects of a cluster: its ``lookup`` finds those of a test.

In: objects and values. Out: the manifests as text, or ``ChartRefusedError``. Called by tests. The API server is
a stand-in that answers reads: Helm sends no others for ``helm template --dry-run=server``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.chart.rendered import CHART, SYSTEM, Manifest, helm, rendered
from support.cluster.stand_ins import answering
from trellis.kube.resources import DEFINITIONS, DEPLOYMENTS, NAMESPACES, SECRETS, STATEFUL_SETS, Resource

_KINDS = {res.kind: res for res in (DEFINITIONS, DEPLOYMENTS, NAMESPACES, SECRETS, STATEFUL_SETS)}
RELEASE = "trellis"


def installed(release: str = RELEASE, namespace: str = SYSTEM, **values: Any) -> list[Manifest]:
    """Return the objects of an installation with these values, with the annotations that Helm adds."""
    owner = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
    return [annotated(item, owner) for item in rendered(namespace, **values)]


def annotated(manifest: Manifest, more: dict[str, str]) -> Manifest:
    """Return a manifest with further annotations."""
    metadata = manifest["metadata"]
    return manifest | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | more}}


def upgraded(directory: Path, present: Iterable[Manifest], **values: Any) -> str:
    """Return what an upgrade of the release to these values applies, in a cluster with the objects ``present``."""
    found = {_path(item): item for item in present if item["kind"] in _KINDS}
    answers = {_version(res): _discovery(res) for res in _KINDS.values()} | found
    place = directory / f"upgrade-{len(list(directory.iterdir()))}"
    place.mkdir()
    with answering(place / "server", lambda path, _: answers.get(path)) as port:
        kubeconfig = place / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(port)))
        options = ("--dry-run=server", "--namespace", SYSTEM)
        return helm("template", RELEASE, str(CHART), *options, values=values, kubeconfig=kubeconfig)


def _path(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return _KINDS[manifest["kind"]].path(metadata.get("namespace"), metadata["name"])


def _version(res: Resource) -> str:
    return f"/apis/{res.api_version}" if res.group else f"/api/{res.api_version}"


def _discovery(res: Resource) -> Manifest:
    """Return the list of the resources that an API version has."""
    kinds = [other for other in _KINDS.values() if other.api_version == res.api_version]
    resources = [
        {"name": kind.plural, "singularName": "", "kind": kind.kind, "namespaced": kind.namespaced, "verbs": ["get"]}
        for kind in kinds
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": res.api_version, "resources": resources}


def _kubeconfig(port: int) -> dict[str, Any]:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": {}}],
    }

"""The Helm chart as it is rendered, and as Helm installs it.

In: values. Out: manifests, or ``ChartRefusedError`` with Helm's message. Called by tests. Helm is that of the dev
dependencies (Linux on x86_64), or one on the PATH; without any these tests are skipped.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from trellis_dev.localcluster.nats import NatsServer

Manifest = dict[str, Any]
CHART = Path(__file__).parents[3] / "deploy" / "helm" / "trellis"
SYSTEM = "trellis-system"
HOOK = "helm.sh/hook"
COMPONENT_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/component")
"""The labels by which pods are selected."""
SECONDS = 400
"""More than Helm waits for its hooks, 5 min: then it is Helm that says what did not end."""


class ChartRefusedError(Exception):
    """Helm did not do it; the text is its message."""


def helm(*arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None) -> str:
    """Run Helm and return what it printed; a cluster is asked only with a kubeconfig."""
    beside = Path(sys.executable).parent / "helm"
    program = str(beside) if beside.exists() else shutil.which("helm")
    if program is None:
        pytest.skip("there is no helm: put one on the PATH")
    command = [program, *arguments, *(["--values", "-"] if values is not None else [])]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig or os.devnull)}
    done = subprocess.run(
        command,
        input=json.dumps(values),
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise ChartRefusedError(done.stderr)
    return done.stdout


def rendered(namespace: str = SYSTEM, **values: Any) -> list[Manifest]:
    """Return what the chart has for an installation in a namespace, with these values; hooks apart."""
    return [item for item in _all(namespace, values) if HOOK not in item["metadata"].get("annotations", {})]


def hooks(event: str, namespace: str = SYSTEM, **values: Any) -> list[Manifest]:
    """Return what the chart makes only for the time of an event: ``pre-install``, ``pre-delete``, ``test``."""
    return [
        item
        for item in _all(namespace, values)
        if event in item["metadata"].get("annotations", {}).get(HOOK, "").split(",")
    ]


def plain(manifest: Manifest) -> Manifest:
    """Return a manifest without the labels that Helm's conventions add to those of ``deploy/rbac``."""
    metadata = manifest["metadata"]
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key in COMPONENT_LABELS}
    return manifest | {"metadata": metadata | {"labels": labels}}


def _all(namespace: str, values: Mapping[str, Any]) -> list[Manifest]:
    found: list[Manifest] = orjson.loads(_template(namespace, json.dumps(values)))
    return found


@functools.cache
def _template(namespace: str, values: str) -> bytes:
    """Return the manifests as JSON, which is read again much faster than Helm's YAML."""
    text = helm("template", "trellis", str(CHART), "--namespace", namespace, values=json.loads(values))
    return orjson.dumps([item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item])


def notes(directory: Path, **values: Any) -> str:
    """Return what Helm prints after an installation with these values: ``helm template`` leaves it out."""
    chart = directory / f"chart-{len(list(directory.iterdir()))}"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "told.txt")
    (chart / "templates" / "told.yaml").write_text('told: {{ tpl (.Files.Get "told.txt") . | toJson }}\n')
    arguments = ("--namespace", SYSTEM, "--show-only", "templates/told.yaml")
    found = yaml.safe_load(helm("template", "trellis", str(chart), *arguments, values=values))
    return str(found["told"])


def only(*services: str) -> dict[str, Any]:
    """Return values with these services and no others."""
    known = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) <= set(known)
    return {name: {"enabled": name in services} for name in known}


def of(found: list[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """Return manifests by kind, namespace and name, each there once."""
    keys = [(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in found]
    assert len(keys) == len(set(keys)), "an object stands there twice"
    return dict(zip(keys, found, strict=True))


def bus_server(files: Mapping[str, str], directory: Path) -> NatsServer:
    """Return a server that runs with the chart's configuration, on another port and store.

    ``files``: ``nats.conf`` of its ConfigMap, and the Secret of the bus. Port, store and JetStream are by the command
    line here.
    """
    config = directory / "config"
    config.mkdir()
    for name, text in files.items():
        (config / name).write_text(text, encoding="utf-8")
    own = re.sub(r"(?s)port: 4222.*?\n}\n", "", files["nats.conf"])
    assert own.split() == ["include", '"accounts.conf"'], "what the command line does not say is as it is"
    (config / "nats.conf").write_text(own, encoding="utf-8")
    return NatsServer(directory / "store", config=config / "nats.conf")

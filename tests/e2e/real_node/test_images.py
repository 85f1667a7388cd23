"""An image built here from a Dockerfile, on a base made here, runs on a real node: no registry is asked."""

from __future__ import annotations

import threading
from pathlib import Path

from support.nodes.real_nodes import Kubectl, pod
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.imagebuild import Recipe, build_image
from trellis_dev.localcluster.node_images import PYTHON, python_image
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.realnode_faults import load_image

CLUSTER = "one_node"
DOCKERFILE = """\
ARG BASE=docker.io/library/python:3.11
FROM $BASE
COPY app.py /app.py
RUN python3 -c "import platform; print(platform.python_version())" > /version
ENTRYPOINT ["python3", "/app.py"]
"""


def test_an_image_built_from_a_dockerfile_runs(one_node: ClusterInfo, kubectl: Kubectl, tmp_path: Path) -> None:
    how = How(Lines(), threading.Event())
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "app.py").write_text("print('built with', open('/version').read().strip())\n")
    name = "trellis.local/app:1"
    recipe = Recipe(name, context, arguments={"BASE": PYTHON}, base=python_image(how), base_name=PYTHON)

    archive = build_image(recipe, tmp_path / "app.tar", how)

    assert {path.name for path in tmp_path.iterdir()} == {"context", "app.tar"}
    load_image(one_node.name, "real-0", archive)
    manifest = pod("built", "", "real-0", image=name)
    del manifest["spec"]["containers"][0]["command"]
    kubectl.create(manifest)
    assert kubectl.ended("built").startswith("built with 3.11.")

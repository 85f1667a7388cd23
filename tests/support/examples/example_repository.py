"""deploy/examples in a git repository, as an operator that keeps a cluster as it stands in git finds them.

In: where NATS of the lattice is. Out: a served repository with the examples as they stand, but for that address.
Called by tests of the examples ``argocd`` and ``flux``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from support.examples.folders import EXAMPLES
from support.operators.git_server import GitServer, git_server
from trellis_dev.localcluster.ports import LOOPBACK

Manifest = dict[str, Any]
_HOSTS: Final = "host-group/hosts.yaml"
_INSTEAD: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "instead", "namespace": "hello"}}
_ADDRESS: Final = "  natsAddress: nats://nats.hello.svc.cluster.local\n"


class ExampleRepository:
    """The repository: its address, and changes as people commit them; each returns the id of its commit."""

    def __init__(self, server: GitServer) -> None:
        self._server = server
        self.url = server.url

    def change(self, file: str, change: Callable[[Manifest], object]) -> str:
        """Change the one object in a file of an example."""

        def edit(checkout: Path) -> None:
            path = _examples(checkout) / file
            found = yaml.safe_load(path.read_text())
            change(found)
            path.write_text(yaml.safe_dump(found))

        return self._server.commit(edit)

    def take_away(self, file: str) -> str:
        """Take the objects of a file out of its example; a ConfigMap is there instead, as no example is empty."""

        def edit(checkout: Path) -> None:
            path = _examples(checkout) / file
            path.with_name("instead.yaml").write_text(yaml.safe_dump(_INSTEAD))
            kustomization = path.with_name("kustomization.yaml")
            text = kustomization.read_text()
            assert path.name in text
            kustomization.write_text(text.replace(path.name, "instead.yaml"))

        return self._server.commit(edit)

    def bring_back(self, file: str) -> str:
        """Undo that."""

        def edit(checkout: Path) -> None:
            path = _examples(checkout) / file
            kustomization = path.with_name("kustomization.yaml")
            kustomization.write_text(kustomization.read_text().replace("instead.yaml", path.name))
            path.with_name("instead.yaml").unlink()

        return self._server.commit(edit)


@contextmanager
def example_repository(folder: Path, nats_port: int) -> Iterator[ExampleRepository]:
    """Serve the examples for the time of a block; ``folder`` is not there yet."""
    with git_server(folder, "trellis") as server:

        def begin(checkout: Path) -> None:
            shutil.copytree(EXAMPLES, _examples(checkout))
            hosts = _examples(checkout) / _HOSTS
            text = hosts.read_text()
            assert _ADDRESS in text
            here = f"  natsAddress: nats://{LOOPBACK}\n  natsClientPort: {nats_port}\n"
            hosts.write_text(text.replace(_ADDRESS, here))

        server.commit(begin)
        yield ExampleRepository(server)


def _examples(checkout: Path) -> Path:
    return checkout / "deploy" / "examples"

"""deploy/examples applied as they stand by the real kubectl, in the namespaces that they name.

Called by the tests of examples. Invariant: when a block is over these namespaces are deleted, although no controller
removes finalizers in them any more; other tests of the cluster may need the same names.
"""

from __future__ import annotations

import contextlib
import http
import os
import subprocess
import time
from collections.abc import Iterator

from support.examples.folders import EXAMPLES
from support.lattices.host_world import PATIENCE
from support.suite.typed import bare_environment, typed
from trellis.kube.resources import APPLICATIONS, HOST_CONFIGS, PODS, SERVICES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

FINALIZER_REMOVED = (HOST_CONFIGS, APPLICATIONS, SERVICES)
_COMMAND_SECONDS = 120


class Kubectl:
    """The real one. Called, it has to succeed, and returns what it printed."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._program = str(cluster.bin_dir / "kubectl")
        self._environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def __call__(self, *arguments: str) -> str:
        done = self._run(arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """Run it where it must not succeed, and return what it complained about."""
        done = self._run(arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def apply(self, folder: str, *options: str) -> None:
        """Apply an example as its page says."""
        self("apply", *options, "-k", str(EXAMPLES / folder))

    def delete(self, folder: str) -> None:
        """Delete an example as its page says, and return when it is deleted."""
        self("delete", "-k", str(EXAMPLES / folder), f"--timeout={_COMMAND_SECONDS}s")

    def wait(self, condition: str, what: str, namespace: str) -> None:
        """Wait for a condition as people do."""
        self("wait", f"--for=condition={condition}", what, "-n", namespace, f"--timeout={_COMMAND_SECONDS}s")

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS + 30,
            check=False,
        )


def trellis(cluster: ClusterInfo, *arguments: str) -> str:
    """Run our command line as people do, with their kubeconfig alone; it has to succeed. Return what it printed."""
    done = typed(bare_environment(KUBECONFIG=str(cluster.kubeconfig)), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def free(api: Api, *namespaces: str) -> Iterator[None]:
    """Have namespaces that examples name for the time of a block."""
    _await_deleted(api, *namespaces)
    yield
    for name in namespaces:
        api.call("DELETE", f"/api/v1/namespaces/{name}")
        deadline = time.monotonic() + PATIENCE
        while api.call("GET", f"/api/v1/namespaces/{name}")[0] != http.HTTPStatus.NOT_FOUND:
            _remove_finalizer(api, name)
            assert time.monotonic() < deadline, f"namespace {name} does not go"
            time.sleep(0.2)


def _remove_finalizer(api: Api, namespace: str) -> None:
    """Do the work of stopped controllers: remove finalizers, and end pods whose node is deleted."""
    for kind in FINALIZER_REMOVED:
        for item in api.call("GET", kind.path(namespace))[1].get("items") or ():
            api.call("PATCH", kind.path(namespace, item["metadata"]["name"]), {"metadata": {"finalizers": None}})
    for item in api.call("GET", PODS.path(namespace))[1].get("items") or ():
        api.call("DELETE", PODS.path(namespace, item["metadata"]["name"]), {"gracePeriodSeconds": 0})


def _await_deleted(api: Api, *namespaces: str) -> None:
    """Wait until these namespaces do not exist."""
    deadline = time.monotonic() + PATIENCE
    for name in namespaces:
        while api.call("GET", f"/api/v1/namespaces/{name}")[0] != http.HTTPStatus.NOT_FOUND:
            assert time.monotonic() < deadline, f"namespace {name} does not go"
            time.sleep(0.1)

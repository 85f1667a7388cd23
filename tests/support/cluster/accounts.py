"""An account of the cluster for one test: a ServiceAccount with a token in a file, as in a pod, and all permissions."""

from __future__ import annotations

import base64
import http
from pathlib import Path
from typing import Any

import yaml

from support.cluster.grants import until_bound, until_unbound
from trellis.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

NAME = "tested"


class Account:
    """A ServiceAccount in a namespace, and a kubeconfig that names files: ``token`` and ``authority``."""

    def __init__(self, cluster: ClusterInfo, api: Api, namespace: str, directory: Path) -> None:
        self._api = api
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.user = f"system:serviceaccount:{namespace}:{NAME}"
        self.token = directory / "token"
        self.authority = directory / "ca.crt"
        self.kubeconfig = directory / "kubeconfig-of-account"
        self._binding = {
            "metadata": {"name": namespace},
            "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        }
        self.trusted = self._write_kubeconfig(Path(cluster.kubeconfig))
        self.create()
        self.bind()
        self.issue()

    def create(self) -> None:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}
        self._call("POST", self._path, body)

    def revoke(self) -> None:
        """Make every token of the account worthless: another takes its name, and has another uid."""
        self._call("DELETE", f"{self._path}/{NAME}")
        self.create()

    def issue(self) -> None:
        """Put a new token into the file."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        answer = self._call("POST", f"{self._path}/{NAME}/token", body)
        self.token.write_text(answer["status"]["token"] + "\n", encoding="ascii")

    def remove(self) -> None:
        """Take its permissions away; the account goes with its namespace."""
        self._api.call("DELETE", CLUSTER_ROLE_BINDINGS.path(None, self._namespace))
        until_unbound(self._api, self._binding)

    def bind(self) -> None:
        """Give it all permissions."""
        self._call("POST", CLUSTER_ROLE_BINDINGS.path(), self._binding)
        until_bound(self._api, self._binding)

    def _write_kubeconfig(self, source: Path) -> bytes:
        config = yaml.safe_load(source.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster.pop("certificate-authority-data"))
        self.authority.write_bytes(authority)
        cluster["certificate-authority"] = str(self.authority)
        config["users"][0]["user"] = {"tokenFile": str(self.token)}
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        return authority

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, answer = self._api.call(method, path, body)
        assert status < http.HTTPStatus.BAD_REQUEST, (method, path, answer)
        return answer

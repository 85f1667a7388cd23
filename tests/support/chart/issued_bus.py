"""A release of the chart whose NATS has certificates of cert-manager.

In: operators' world, where cert-manager runs, a namespace, the name of an issuer. Out: what cert-manager made of the
chart's Certificate. Called by the test of cert-manager. Helm installs the chart; what a kubelet would do is the test's.
"""

from __future__ import annotations

import base64
import http
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.chart.chart_nats import Files
from support.chart.installed import BUS_SECRET
from support.chart.rendered import CHART, HOOK, Manifest, helm
from support.nats.buses import eventually
from support.operators.cert_manager import CERTIFICATES, ISSUERS
from support.operators.operator_processes import Operators
from trellis.kube.resources import SECRETS

CERTIFICATE: Final = "trellis-nats"
SECRET: Final = "trellis-nats-certificate"
ISSUE_SECONDS: Final = 60.0
_KINDS: Final = {item.kind: item for item in (CERTIFICATES, ISSUERS)}


@dataclass
class IssuedBus:
    """The release. ``values``: what it is installed with besides its certificates."""

    operators: Operators
    namespace: str
    release: str
    values: Mapping[str, Any]

    def create(self, *manifests: Manifest) -> None:
        """Have objects of cert-manager."""
        for manifest in manifests:
            status, answer = self.operators.api.call("POST", _KINDS[manifest["kind"]].path(self.namespace), manifest)
            assert status == http.HTTPStatus.CREATED, answer

    def apply(self, issuer: str, **certificate: str) -> None:
        """Install it, or upgrade it, with certificates of an issuer; ``certificate``: duration and renewBefore."""
        tls = {"enabled": True, "certManager": {"issuerRef": {"name": issuer}, **certificate}}
        values = {"crds": {"install": False}, **self.values, "nats": {"tls": tls}}
        # No kubelet runs the Job of a hook; the test puts the keys where it would.
        self._helm("upgrade", self.release, str(CHART), "--install", "--wait=false", "--no-hooks", values=values)

    def manifests(self) -> list[Manifest]:
        """Return what Helm has applied."""
        return [item for item in yaml.safe_load_all(self._helm("get", "manifest", self.release)) if item]

    def job(self) -> list[Manifest]:
        """Return the hooks before an installation."""
        found = [item for item in yaml.safe_load_all(self._helm("get", "hooks", self.release)) if item]
        return [item for item in found if "pre-install" in item["metadata"]["annotations"][HOOK]]

    def hold(self, users: Mapping[str, str]) -> None:
        """Have the Secret of the bus, as the Job makes it."""
        path = SECRETS.path(self.namespace, BUS_SECRET)
        self.operators.api.call("DELETE", path)
        body = {"metadata": {"name": BUS_SECRET}, "stringData": dict(users)}
        status, answer = self.operators.api.call("POST", SECRETS.path(self.namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def notes(self) -> str:
        """Return the output of Helm after the installation."""
        return self._helm("get", "notes", self.release)

    def certificate(self, name: str = CERTIFICATE) -> Manifest:
        """Return a Certificate as it is, the chart's or another one."""
        status, found = self.operators.api.call("GET", CERTIFICATES.path(self.namespace, name))
        assert status == http.HTTPStatus.OK, found
        return found

    def secret(self, name: str = SECRET) -> dict[str, str]:
        """Return a Secret's content, {} if there is none."""
        found = self.operators.api.call("GET", SECRETS.path(self.namespace, name))[1].get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in found.items()}

    async def issued(self, before: Files, name: str = CERTIFICATE) -> dict[str, str]:
        """Wait until the Secret has another certificate than before, and return its content."""
        secret = self.certificate(name)["spec"]["secretName"]

        def there() -> bool:
            certificate = self.secret(secret).get("tls.crt")
            return certificate not in {None, before.get("tls.crt")} and self._published(name) == {"Ready": "True"}

        try:
            await eventually(there, ISSUE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not issued: {self.certificate(name)}") from None
        return self.secret(secret)

    def _published(self, name: str) -> dict[str, str]:
        """Return what its conditions say; no condition is of a former generation."""
        found = self.certificate(name)
        return {
            condition["type"]: condition["status"]
            if condition.get("observedGeneration") == found["metadata"]["generation"]
            else ""
            for condition in found.get("status", {}).get("conditions", ())
        }

    def renew(self, name: str = CERTIFICATE) -> None:
        """Ask for another certificate, as ``cmctl renew`` does."""
        found = self.certificate(name)
        requested = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test"}
        requested |= {"observedGeneration": found["metadata"]["generation"]}
        found["status"]["conditions"].append(requested)
        path = CERTIFICATES.path(self.namespace, name, "status")
        status, answer = self.operators.api.call("PUT", path, found)
        assert status == http.HTTPStatus.OK, answer

    def lose(self) -> None:
        """Delete the Secret."""
        status, answer = self.operators.api.call("DELETE", SECRETS.path(self.namespace, SECRET))
        assert status == http.HTTPStatus.OK, answer

    def uninstall(self) -> None:
        """Take it away, as Helm does."""
        self._helm("uninstall", self.release, "--ignore-not-found", "--no-hooks")

    def clear(self) -> None:
        """Take away all of it, and what cert-manager leaves: objects that people made, and Secrets."""
        self.uninstall()
        for res in (ISSUERS, CERTIFICATES):
            for item in self.operators.api.call("GET", res.path(self.namespace))[1]["items"]:
                self.operators.api.call("DELETE", res.path(self.namespace, item["metadata"]["name"]))
                if secret := item["spec"].get("secretName"):
                    self.operators.api.call("DELETE", SECRETS.path(self.namespace, secret))
        for secret in (SECRET, BUS_SECRET):
            self.operators.api.call("DELETE", SECRETS.path(self.namespace, secret))

    def _helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        kubeconfig = Path(self.operators.cluster.kubeconfig)
        return helm(*arguments, "--namespace", self.namespace, values=values, kubeconfig=kubeconfig)

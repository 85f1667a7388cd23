"""cert-manager as processes: its controller, its webhook, and the injector of the webhook's CA.

In: operators' world (:mod:`support.operators.operator_processes`). Out: all three as the chart of their release has
them, with its accounts, rights, definitions, webhooks and arguments, but for addresses: the API server is led to a port
of this machine. Called by tests of the chart's certificates.
Invariant: no webhook outlives its server: with one that does not answer, nothing of its kinds can be written.
"""

from __future__ import annotations

import contextlib
import http
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from support.chart.rendered import HOOK, Manifest, helm
from support.operators.operator_processes import Operators, address
from trellis.kube.resources import Resource
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.readiness import http_ok
from trellis_dev.localcluster.versions import products

NAMESPACE: Final = "cert-manager"
ISSUERS: Final = Resource("cert-manager.io", "v1", "issuers", "Issuer", namespaced=True)
CERTIFICATES: Final = Resource("cert-manager.io", "v1", "certificates", "Certificate", namespaced=True)
REQUESTS: Final = Resource("cert-manager.io", "v1", "certificaterequests", "CertificateRequest", namespaced=True)
_ADMISSION: Final = "admissionregistration.k8s.io"
_WEBHOOKS: Final = tuple(
    Resource(_ADMISSION, "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
_CONTROLLER: Final = "cert-manager"
_WEBHOOK: Final = "cert-manager-webhook"
_INJECTOR: Final = "cert-manager-cainjector"
"""Each is the name of a tool, of a Deployment and of its account."""
_RUN_HERE: Final = {"Deployment", "Job"}


@contextlib.contextmanager
def cert_manager(operators: Operators) -> Iterator[None]:
    """Have it for the time of a block; at its beginning it takes objects of its kinds."""
    operators.namespace(NAMESPACE)
    served, health, metrics = free_ports(3)
    objects = [item for item in _rendered(operators) if HOOK not in item["metadata"].get("annotations", {})]
    arguments = {item["metadata"]["name"]: _arguments(item) for item in objects if item["kind"] == "Deployment"}
    with _installed(operators, [item for item in objects if item["kind"] not in _RUN_HERE], served):
        kubeconfigs = {name: operators.kubeconfig(NAMESPACE, name) for name in arguments}
        flags = [
            *arguments[_WEBHOOK],
            f"--kubeconfig={kubeconfigs[_WEBHOOK]}",
            f"--secure-port={served}",
            f"--healthz-port={health}",
        ]
        operators.start(_WEBHOOK, (_WEBHOOK, *flags), lambda: http_ok(f"http://{address(health)}/healthz"))
        flags = [*arguments[_INJECTOR], f"--kubeconfig={kubeconfigs[_INJECTOR]}"]
        operators.start(_INJECTOR, (_INJECTOR, *flags), lambda: _takes_issuers(operators))
        flags = [
            *arguments[_CONTROLLER],
            f"--kubeconfig={kubeconfigs[_CONTROLLER]}",
            f"--metrics-listen-address={address(metrics)}",
        ]
        operators.start(_CONTROLLER, (_CONTROLLER, *flags), lambda: http_ok(f"http://{address(metrics)}/metrics"))
        yield


def _rendered(operators: Operators) -> list[Manifest]:
    """Return what the release's chart has, put together as its release does: with the version and the definitions."""
    deploy, version = operators.module("cert-manager") / "deploy", products()["cert-manager"].version
    chart = operators.directory / "cert-manager-chart"
    templates = chart / "templates"
    templates.mkdir(parents=True)
    for source in (*(deploy / "charts/cert-manager/templates").iterdir(), *(deploy / "crds").glob("*.yaml")):
        shutil.copyfile(source, templates / source.name)  # a module's files are read-only
    shutil.copyfile(deploy / "charts/cert-manager/values.yaml", chart / "values.yaml")
    head = yaml.safe_load((deploy / "charts/cert-manager/Chart.template.yaml").read_text(encoding="utf-8"))
    head |= dict.fromkeys(("version", "appVersion"), f"v{version}")
    (chart / "Chart.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
    text = helm("template", "cert-manager", str(chart), "--namespace", NAMESPACE)
    return [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]


def _arguments(deployment: Manifest) -> list[str]:
    """Return what a Deployment's program is started with."""
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return [item.replace("$(POD_NAMESPACE)", NAMESPACE) for item in container["args"]]


@contextlib.contextmanager
def _installed(operators: Operators, objects: list[Manifest], port: int) -> Iterator[None]:
    """Have everything but the programs, the webhooks leading to a port of this machine."""
    operators.outside(NAMESPACE, _WEBHOOK, port)
    services = [item for item in objects if item["kind"] == "Service"]
    definitions = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
    webhooks = [item for item in objects if item["kind"] in {res.kind for res in _WEBHOOKS}]
    for hook in (hook for webhook in webhooks for hook in webhook["webhooks"]):
        hook["clientConfig"]["service"]["port"] = port
    operators.define(_written(operators, "definitions", definitions))
    rest = [item for item in objects if item not in (*services, *definitions)]
    operators.apply(_written(operators, "rest", rest))
    try:
        yield
    finally:
        for res in _WEBHOOKS:
            operators.api.call("DELETE", res.path(None, _WEBHOOK))


def _written(operators: Operators, name: str, objects: list[Manifest]) -> Path:
    path = operators.directory / f"cert-manager-{name}.yaml"
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return path


def _takes_issuers(operators: Operators) -> bool:
    """Say whether the API server reaches the webhooks and believes them."""
    status, _ = operators.api.call("POST", f"{ISSUERS.path(NAMESPACE)}?dryRun=All", issuer("probe", {"selfSigned": {}}))
    return status == http.HTTPStatus.CREATED


def issuer(name: str, spec: dict[str, Any]) -> Manifest:
    """Return an Issuer."""
    return {"apiVersion": ISSUERS.api_version, "kind": ISSUERS.kind, "metadata": {"name": name}, "spec": spec}


def authority(name: str) -> list[Manifest]:
    """Return an authority of one's own and the Issuer of its certificates, as cert-manager's documentation has them."""
    spec = {
        "isCA": True,
        "commonName": name,
        "secretName": name,
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "issuerRef": {"name": f"{name}-root", "kind": ISSUERS.kind},
    }
    root = {"apiVersion": CERTIFICATES.api_version, "kind": CERTIFICATES.kind, "metadata": {"name": name}, "spec": spec}
    return [issuer(f"{name}-root", {"selfSigned": {}}), root, issuer(name, {"ca": {"secretName": name}})]

"""Network configuration of the Trellis installer, as env and volumes of its Job.

Pure: arguments in, parts of a manifest out. Called by ``resources``.
Invariants: no value here is secret: a proxy's password and registry credentials stay in their Secrets, which the
kubelet passes to the container; credentials of registries are files, never env. A missing ConfigMap or Secret does not
prevent the start of an installer that can report it itself, which is faster than the Job's deadline.
Source of the names: ``node_installer --help``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis.installer_api.spec import InstallSpec

Manifest = dict[str, Any]

CA_DIRECTORY: Final = "/etc/trellis/ca"
PULL_SECRETS_DIRECTORY: Final = "/etc/trellis/pull-secrets"
PROXY_VARIABLES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Also the keys of the proxy's Secret; the first of them is required."""
_CA_FILE: Final = "ca.pem"
_READABLE_BY_ROOT: Final = 0o400


@dataclass(frozen=True, slots=True)
class InstallerEnv:
    """Network configuration of the installer. Every Secret and ConfigMap is in the namespace of the Jobs.

    ``otlp_endpoint``: for its spans. ``proxies``: values by name of the variable, without credentials.
    ``proxy_secret``: Secret with the other variables. ``ca``: name and key of a ConfigMap. ``image_pull_secrets``: for
    the image of the installer itself. ``sends_alone``: no service has an endpoint, so none decided on sampling.
    """

    otlp_endpoint: str | None = None
    sends_alone: bool = False
    proxies: tuple[tuple[str, str], ...] = ()
    proxy_secret: str | None = None
    ca: tuple[str, str] | None = None
    image_pull_secrets: tuple[str, ...] = ()


def make_env(installer_env: InstallerEnv, fetched: Sequence[str] | None) -> list[Manifest]:
    """Return the installer's environment variables, in a fixed order.

    ``fetched``: the pull secrets for its downloads, None without downloads. A removal then waits for no Secret.
    """
    env: list[Manifest] = []
    if installer_env.otlp_endpoint:
        env.append({"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": installer_env.otlp_endpoint})
        if installer_env.sends_alone:
            env.append({"name": "OTEL_TRACES_SAMPLER", "value": "always_on"})
    plain = dict(installer_env.proxies)
    for variable in PROXY_VARIABLES:
        if variable in plain:
            env.append({"name": variable, "value": plain[variable]})
        elif installer_env.proxy_secret:
            reference: Manifest = {"name": installer_env.proxy_secret, "key": variable}
            if fetched is None or variable != PROXY_VARIABLES[0]:
                reference["optional"] = True
            env.append({"name": variable, "valueFrom": {"secretKeyRef": reference}})
    if _ca(installer_env, fetched):
        env.append({"name": "TRELLIS_INSTALLER_CA_FILE", "value": f"{CA_DIRECTORY}/{_CA_FILE}"})
    if fetched:
        env.append({"name": "TRELLIS_INSTALLER_PULL_SECRETS", "value": PULL_SECRETS_DIRECTORY})
    return env


def make_volumes(installer_env: InstallerEnv, fetched: Sequence[str] | None) -> list[tuple[Manifest, str]]:
    """Return the installer's volumes, each with the directory where it is mounted; ``fetched`` as in make_env."""
    volumes: list[tuple[Manifest, str]] = []
    if ca := _ca(installer_env, fetched):
        name, key = ca
        source = {"name": name, "items": [{"key": key, "path": _CA_FILE}], "optional": True}
        volumes.append(({"name": "ca", "configMap": source}, CA_DIRECTORY))
    sources = [
        {
            "secret": {
                "name": name,
                "items": [{"key": ".dockerconfigjson", "path": f"{name}/config.json"}],
                "optional": True,
            }
        }
        for name in fetched or ()
    ]
    if sources:
        projected = {"sources": sources, "defaultMode": _READABLE_BY_ROOT}
        volumes.append(({"name": "pull-secrets", "projected": projected}, PULL_SECRETS_DIRECTORY))
    return volumes


def _ca(installer_env: InstallerEnv, fetched: Sequence[str] | None) -> tuple[str, str] | None:
    """Return the ConfigMap with CAs if it is needed: for downloads, or for spans over TLS."""
    sends = (installer_env.otlp_endpoint or "").lower().startswith("https:")
    return installer_env.ca if fetched is not None or sends else None


def pull_secrets_of(spec: InstallSpec) -> tuple[str, ...]:
    """Return the sorted names of the Secrets that the sources of a spec need."""
    return tuple(
        sorted({source.pull_secret for shim in spec.shims for source in shim.sources if source.pull_secret is not None})
    )

"""Environment and arguments of the wasmCloud host.

Pure: a specification in, parts of a container out, in the order of wasmcloud-operator. Called by ``template``.
Source: the command line of the host (wasmCloud 1.9), and the output of wasmcloud-operator 0.5.1 for each field.
Invariant: credentials are references to Secrets, never values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from host_manager.domain.group import LATEST, HostGroupSpec
from trellis.crds.host_config import Observability, Signal, WasmCloudHostConfigSpec
from trellis.lattice.connection import groups

Manifest = dict[str, Any]

LABEL_VARIABLE: Final = "WASMCLOUD_LABEL_"
"""Prefix of the variables that become labels of the host."""
POD_LABEL: Final = groups.POD_LABEL
SEED_KEY: Final = "WASMCLOUD_CLUSTER_SEED"
"""Key in the NATS Secret of groups from before wasmCloud 1.0."""
REGISTRY_KEYS: Final = ("username", "password")
"""Keys of the Secret that Trellis creates for the registry's credentials."""
_LEAF_HOST: Final = "127.0.0.1"
_LEAF_PORT: Final = "4222"
_RPC_TIMEOUT_MS: Final = "4000"


def make_env(desired: HostGroupSpec) -> list[Manifest]:
    """Return the environment of the host, except for variables from a Secret."""
    spec = desired.group.spec
    labels = {"kubernetes": "true"}
    pairs = [
        ("WASMCLOUD_STRUCTURED_LOGGING_ENABLED", _flag(spec.enable_structured_logging is not False)),
        ("WASMCLOUD_LOG_LEVEL", spec.log_level),
        ("WASMCLOUD_JS_DOMAIN", spec.jetstream_domain),
        ("WASMCLOUD_LATTICE", spec.lattice),
        ("WASMCLOUD_LATTICE_PREFIX", spec.lattice),
        ("WASMCLOUD_NATS_HOST", _LEAF_HOST),
        ("WASMCLOUD_NATS_PORT", _LEAF_PORT),
        ("WASMCLOUD_RPC_TIMEOUT_MS", _RPC_TIMEOUT_MS),
        *_labels(labels, without=spec.host_labels or {}),
        *_given(spec),
        *_labels(dict(sorted((spec.host_labels or {}).items()))),
        *_last(spec),
    ]
    env: list[Manifest] = [{"name": name, "value": value} for name, value in pairs]
    if desired.revision < LATEST:
        return env
    theirs = _named_by_user(spec)
    return [*env, *(variable for variable in _of_latest(desired) if variable["name"] not in theirs)]


def make_registry_env(desired: HostGroupSpec, secret: str) -> list[Manifest]:
    """Return the environment of the host for the registry: a host supports one, the first by name.

    ``secret``: name of the Secret that Trellis creates. Source: ``--oci-registry`` of the host's command line.
    """
    if not desired.inputs.registries:
        return []
    user, password = ({"secretKeyRef": {"name": secret, "key": key}} for key in REGISTRY_KEYS)
    return [
        {"name": "WASMCLOUD_OCI_REGISTRY_USER", "valueFrom": user},
        {"name": "WASMCLOUD_OCI_REGISTRY_PASSWORD", "valueFrom": password},
        {"name": "WASMCLOUD_OCI_REGISTRY", "value": desired.inputs.registries[0].server},
    ]


def make_args(spec: WasmCloudHostConfigSpec) -> list[str]:
    """Return the arguments for OpenTelemetry; those for certificates follow them."""
    found = spec.observability
    if found is None:
        return []
    args = ["--enable-observability"] if found.enable else []
    if found.endpoint:
        args += ["--override-observability-endpoint", found.endpoint]
    if found.protocol:
        args += ["--observability-protocol", found.protocol]
    return [*args, *_signals(found)]


def _signals(found: Observability) -> Iterable[str]:
    signals: tuple[tuple[str, Signal | None], ...] = (
        ("traces", found.traces),
        ("metrics", found.metrics),
        ("logs", found.logs),
    )
    for name, signal in signals:
        if signal is not None and signal.enable:
            yield f"--enable-{name}"
        if signal is not None and signal.endpoint is not None:
            yield from (f"--override-{name}-endpoint", signal.endpoint)


def _given(spec: WasmCloudHostConfigSpec) -> list[tuple[str, str]]:
    """Return the variables of fields that are set."""
    policy = spec.policy_service
    flags = (
        ("WASMCLOUD_CONFIG_SERVICE", spec.config_service_enabled),
        ("WASMCLOUD_OCI_ALLOW_LATEST", spec.allow_latest),
    )
    insecure = None if spec.allowed_insecure is None else ",".join(spec.allowed_insecure)
    timeout = policy.timeout_ms if policy else None
    return [
        *_set(("WASMCLOUD_CTL_TOPIC_PREFIX", spec.control_topic_prefix)),
        *((name, "true") for name, on in flags if on),
        *_set(
            ("WASMCLOUD_OCI_ALLOWED_INSECURE", insecure),
            ("WASMCLOUD_POLICY_TOPIC", policy.topic if policy else None),
            ("WASMCLOUD_POLICY_CHANGES_TOPIC", policy.changes_topic if policy else None),
            ("WASMCLOUD_POLICY_TIMEOUT", None if timeout is None else str(timeout)),
        ),
    ]


def _last(spec: WasmCloudHostConfigSpec) -> list[tuple[str, str]]:
    memory = spec.max_linear_memory_bytes
    return _set(
        ("WASMCLOUD_SECRETS_TOPIC", spec.secrets_topic_prefix),
        ("WASMCLOUD_MAX_LINEAR_MEMORY", None if memory is None else str(memory)),
    )


def _of_latest(desired: HostGroupSpec) -> Iterable[Manifest]:
    """Yield the additions of Trellis' template: the name of the pod, and variables for hosts from before 1.0."""
    spec = desired.group.spec
    if POD_LABEL not in (spec.host_labels or {}):
        yield {"name": LABEL_VARIABLE + POD_LABEL, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    if desired.inputs.seed and spec.secret_name:
        yield {"name": SEED_KEY, "valueFrom": {"secretKeyRef": {"name": spec.secret_name, "key": SEED_KEY}}}
        if spec.issuers:
            yield {"name": "WASMCLOUD_CLUSTER_ISSUERS", "value": ",".join(spec.issuers)}


def _named_by_user(spec: WasmCloudHostConfigSpec) -> list[Any]:
    """Return the names of variables of the user: together with a reference from Trellis they would be invalid."""
    options = spec.scheduling_options
    additions = options.container_template_additions if options else None
    env = additions.wasmcloud.get("env") if additions else None
    return [item.get("name") for item in env if isinstance(item, dict)] if isinstance(env, list) else []


def _labels(labels: dict[str, str], without: Iterable[str] = ()) -> list[tuple[str, str]]:
    return [(LABEL_VARIABLE + name, value) for name, value in labels.items() if name not in without]


def _set(*pairs: tuple[str, str | None]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in pairs if value is not None]


def _flag(value: bool) -> str:
    return "true" if value else "false"

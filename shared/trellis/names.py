"""Every label, annotation, field manager and object name that Trellis writes or reads, spelt once.

Pure: strings in, strings out. Called by services, the command line and tests; nothing else spells these names.
Invariant: each function returns a name Kubernetes accepts, whatever valid name it was given.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

FIELD_MANAGER_NODE_WATCHER: Final = "trellis.dev/node-watcher"
FIELD_MANAGER_PROVISIONER: Final = "trellis.dev/provisioner"
FIELD_MANAGER_HOST_MANAGER: Final = "trellis.dev/host-manager"
FIELD_MANAGER_SERVICE_REFLECTOR: Final = "trellis.dev/service-reflector"
FIELD_MANAGER_APPLICATION_MANAGER: Final = "trellis.dev/application-manager"
FIELD_MANAGER_CONTROLLER_HOST: Final = "trellis.dev/controller-host"
FIELD_MANAGER_SECRETS_BACKEND: Final = "trellis.dev/secrets-backend"
FIELD_MANAGER_WADM: Final = "trellis.dev/wadm"
"""Of the ``spec`` of an Application that came from wadm: whoever else has a field of it is a person, or their tool."""
FIELD_MANAGER_COMMAND_LINE: Final = "trellis.dev/command-line"

# --- KWasm's names: kept, because users' nodes and manifests carry them ---
ANNOTATION_OPT_IN: Final = "kwasm.sh/kwasm-node"
LABEL_PROVISIONED: Final = "kwasm.sh/kwasm-provisioned"
"""Label of a provisioned node; its value is the node's name (shortened past 63 characters). The annotation of the
same key then carries the whole name."""
LABEL_JOB: Final = "kwasm.sh/job"
JOB_CONTAINER: Final = "kwasm-provision"
JOB_REMOVAL_CONTAINER: Final = "remove-first"
JOB_SUFFIX: Final = "provision-kwasm"

LABEL_KWASM_DEFAULT: Final = "trellis.dev/kwasm-default"
"""On a Shim, ``true``: nodes that opt in by KWasm's annotation get it."""

SHIM_PROVISIONED: Final = "provisioned"
"""Value of the label ``<shim>`` of a node: runtime-class-manager's."""

FINALIZER: Final = "trellis.dev/provisioner"
"""On a Shim: it stays until no node has it."""

# --- our own, on Nodes ---
LABEL_WASM_READY: Final = "trellis.dev/wasm"
WASM_READY: Final = "ready"
ANNOTATION_DIGEST: Final = "trellis.dev/kwasm-digest"
"""What was installed: digest of the installer's specification (16 hex digits)."""
ANNOTATION_SHIMS: Final = "trellis.dev/shims"
"""Digests by Shim name: ``slight=<digest> spin=<digest>``. On a Node what was proved, on a Job what it leads to."""
ANNOTATION_VERIFIED: Final = "trellis.dev/verified"
"""What was proved: ``canary``, ``handler`` or ``job``."""
ANNOTATION_NODE_UID: Final = "trellis.dev/node-uid"
"""Uid of the Node the other marks were made for: a node replaced under the same name starts from nothing."""
ANNOTATION_FAILURE: Final = "trellis.dev/provision-failure"
"""Why the last attempt failed, for people: reason, and the installer's own last log lines."""
ANNOTATION_FAILED_ATTEMPT: Final = "trellis.dev/provision-failed-attempt"
"""``<digest>/<attempt>/<unix seconds>`` of the last failure: counts attempts over restarts."""

ANNOTATION_BLAMED: Final = "trellis.dev/failed-shims"
"""Digests by Shim name, as in :data:`ANNOTATION_SHIMS`: what the last failures were blamed on. On a Job: its own."""

# --- our own, on installer Jobs ---
LABEL_NODE_UID: Final = "trellis.dev/node-uid"
LABEL_DIGEST: Final = "trellis.dev/digest"
LABEL_OPERATION: Final = "trellis.dev/operation"
LABEL_ATTEMPT: Final = "trellis.dev/attempt"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "trellis"
ANNOTATION_NODE: Final = "trellis.dev/node"
"""Whole name of the node a Job works on (a label value holds only 63 characters)."""
ANNOTATION_HANDLER: Final = "trellis.dev/handler"
"""Runtime handlers the installer promises, joined by commas; absent for a legacy image of which none is known."""
ANNOTATION_REMOVED_HANDLERS: Final = "trellis.dev/removed-handlers"
"""Runtime handlers that a Job takes away, joined by commas."""
ANNOTATION_TRACEPARENT: Final = "trellis.dev/traceparent"
ANNOTATION_JOB_FAILURE: Final = "trellis.dev/failure"
"""The provisioner's verdict on a failed Job: ``<Reason>: <message>``. Written before the fact is said."""
ANNOTATION_DISRUPTIVE: Final = "trellis.dev/disruptive"
"""``true`` beside a verdict: what failed restarted the node's container runtime, so it is not tried again soon."""
ANNOTATION_UNCONFIRMED: Final = "trellis.dev/unconfirmed-shims"
"""On a Job: Shims that may be on its node from before it, though no mark names them, joined by commas."""
ANNOTATION_CANARIES: Final = "trellis.dev/canaries"
"""Shims of which a canary pod is to succeed before the Job counts, joined by commas."""
ANNOTATION_PROOF: Final = "trellis.dev/proof"
"""What the canary pods of a Job proved: ``canary`` or ``handler``."""
ANNOTATION_ROLLS_BACK: Final = "trellis.dev/rolls-back"
"""On a Job that brings a node back to what it had: why, as ``<Reason>: <message>``."""

# --- our own, on canary pods ---
LABEL_CANARY: Final = "trellis.dev/canary"
LABEL_JOB_UID: Final = "trellis.dev/job-uid"
ANNOTATION_SHIM: Final = "trellis.dev/shim"
"""Whole name of the Shim that a pod tries (a label value holds only 63 characters)."""
CANARY_CONTAINER: Final = "canary"

# --- containers and ledger ---
NODE_ROOT: Final = "/mnt/node-root"
INSTALLER_SPEC: Final = "TRELLIS_INSTALLER_SPEC"
"""Environment variable that tells our own installer what to do, as JSON."""
LEDGER: Final = "trellis-rollout-ledger"
LABEL_LEDGER: Final = "trellis.dev/ledger"
"""``true`` on the ledger."""
ANNOTATION_HALTED: Final = "trellis.dev/halted"
"""On the ledger: the shims whose rollout is halted because too many nodes failed, joined by commas."""
ANNOTATION_HALT_PUBLISHED: Final = "trellis.dev/halt-published"
"""On the ledger: the mark that the bus was told of the halt of these shims; gone once it was told that it is over."""
ANNOTATION_ACKNOWLEDGED: Final = "trellis.dev/failures-acknowledged-at"
"""On a Shim, Unix seconds: failures recorded up to then no longer halt its rollout, and are tried again at once. The
word of a person who resumed it; the time is that of the last failure they knew of."""
ANNOTATION_TAKEN_OVER: Final = "trellis.dev/taken-over"
"""On the Deployment of another operator, ``true``: Trellis may work although that runs. The word of a person."""
LABEL_SHIM: Final = "trellis.dev/shim"
"""On the ControllerRevisions that keep a Shim's former versions: its name, as :func:`shim_label` shortens it."""
LABEL_SHIM_PREFIX: Final = "shim.trellis.dev/"
"""With the name of a Shim, as :func:`shim_label` shortens it: ``true`` on each installer Job and pod that changes it. A
Job may change several."""
LEASE_PREFIX: Final = "trellis-"
ANNOTATION_HOLDER: Final = "trellis.dev/holder"
"""On a Lease: the last holder that was of Trellis. Other software that takes the Lease leaves it as it is."""
LEASE_NODES: Final = "trellis-nodes"
"""The claim of one installation on the Nodes of a cluster."""
CLAIM_NAMESPACE: Final = "kube-system"
"""Where that Lease is: every cluster has it, and users who may edit a namespace of their own may not write there."""
WAITING_PREFIX: Final = "waiting.trellis.dev/"
"""On that Lease, with the namespace of an installation that waits for it: since when it was last seen, RFC 3339."""
# --- of groups of wasmCloud hosts: wasmcloud-operator's, because pods and children that run carry them ---
WASMCLOUD_OPERATOR: Final = "operator.k8s.wasmcloud.dev/wasmcloud-host-config"
"""Its finalizer on a WasmCloudHostConfig, and its field manager."""
WASMCLOUD_OPERATOR_SERVICE: Final = "operator.k8s.wasmcloud.dev/service"
"""Its finalizer on a Service that mirrors an application."""
WADM_OPERATOR: Final = "wadm-operator"
"""Value of :data:`LABEL_MANAGED_BY` of its pods."""
HOST_LABEL_PREFIX: Final = "host-label.k8s.wasmcloud.dev/"
"""Of the labels of pods that are those of their hosts."""
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
"""On a pod the group it belongs to."""

# --- our own, on groups of wasmCloud hosts ---
FINALIZER_HOSTS: Final = "trellis.dev/host-manager"
ANNOTATION_TEMPLATE: Final = "trellis.dev/template"
"""On a group, ``latest``: its pods get our own template now, by a roll."""
TEMPLATE_LATEST: Final = "latest"
ANNOTATION_CHECKSUM: Final = "trellis.dev/checksum"
"""On a pod template: of the Secrets and ConfigMaps that its pods are made from."""
LABEL_TEMPLATE: Final = "trellis.dev/template"
"""On a Deployment or DaemonSet: ``<revision>.<digest>`` of its pod template, and of what that was made from. A label,
because another annotation counts as a new generation of a Deployment."""
LABEL_APPLIED: Final = "trellis.dev/applied"
"""On a child of a group: digest of what we applied."""

# --- of secrets for components ---
SECRETS_KEY: Final = "trellis-secrets-xkey"
"""Secret with the curve key of the secrets backend, in the namespace of the installation."""
SECRETS_SEED: Final = "seed"
"""In its data: the seed (SX…) of the key that hosts are given."""
SECRETS_PREVIOUS: Final = "previous"
"""In its data: seeds of former keys that still open requests, one a line, newest first."""
ANNOTATION_ROTATED: Final = "trellis.dev/rotated"
"""On it, RFC 3339: since when its key is given out. Hosts that are older may know a former one only."""
SECRETS_ACCOUNT: Final = "wasmcloud-secrets"
"""ServiceAccount that a Secret is read as if a policy names none."""
IMPERSONATION_PREFIX: Final = "trellis-impersonate-"
"""Of Roles that let secrets_backend be an account."""
CONTROLLER_ROLE_PREFIX: Final = "trellis-controller-"
"""Of Roles that let controller_host be an account. The two services share none: a binding has one list of subjects."""
CONTROLLER_WATCH_ROLE_PREFIX: Final = "trellis-watcher-"
"""Of Roles that let an account see what its controllers watch."""
READER_ROLE_PREFIX: Final = "trellis-reader-"
"""Of Roles that let an account read the Secrets that are given by way of secrets_backend."""
ANNOTATION_RESTART_ON: Final = "trellis.dev/restart-on"
"""On a group of hosts, ``secretChange``: it rolls when a Secret that its components were given changes."""
RESTART_ON_CHANGE: Final = "secretChange"
ANNOTATION_RESTARTED_FOR: Final = "trellis.dev/restarted-for"
"""On a pod template: the Secrets that its pods were restarted for, ``<namespace>/<name>=<resourceVersion> …``."""
ANNOTATION_RESTARTED_AT: Final = "trellis.dev/restarted-at"
"""On a pod template, RFC 3339: when its pods were last restarted for changed Secrets."""
ANNOTATION_PODS_RETRIED: Final = "trellis.dev/pods-retried"
"""On what runs the pods of a group, RFC 3339: when its controller was last asked to try again what was refused."""

# --- of Services that mirror applications; the first are annotations of the application ---
ANNOTATION_SERVICE: Final = "trellis.dev/service"
"""``false``: the application gets no Service."""
ANNOTATION_SERVICE_PORTS: Final = "trellis.dev/service-ports"
"""Ports of capabilities that speak no wasi:http: ``db=5432,cache=6379/tcp,web=8080/http``."""
ANNOTATION_SERVICE_NAMESPACE: Final = "trellis.dev/service-namespace"
"""Where the Service is to be, in place of the namespaces of the lattice's groups of hosts."""
ANNOTATION_SERVICE_TYPE: Final = "trellis.dev/service-type"
ANNOTATION_SERVICE_AFFINITY: Final = "trellis.dev/service-session-affinity"
ANNOTATION_SERVICE_GATEWAY: Final = "trellis.dev/service-gateway"
"""Gateway that an HTTPRoute is made for: ``<name>`` or ``<namespace>/<name>``."""
ANNOTATION_SERVICE_HOSTNAMES: Final = "trellis.dev/service-hostnames"
"""Host names of the HTTPRoute, joined by commas."""
SERVICE_LABEL_PREFIX: Final = "service-label.trellis.dev/"
"""Of annotations of the application that become labels of its Service."""
SERVICE_ANNOTATION_PREFIX: Final = "service-annotation.trellis.dev/"
"""Of annotations of the application that become annotations of its Service."""

ANNOTATION_APPLICATION: Final = "trellis.dev/application"
"""On a Service: the application that it mirrors."""
ANNOTATION_LATTICE: Final = "trellis.dev/lattice"
"""On a Service: the lattice of its application, ``<name>/<digest of whose NATS>``."""
ANNOTATION_HOST_GROUPS: Final = "trellis.dev/host-groups"
"""On a Service: ``namespace/name`` of the host groups on its lattice, joined by spaces: they decide if it changes."""
ANNOTATION_REFLECTED_AS: Final = "trellis.dev/reflected-as"
"""On a Service: its own ``namespace/name``: a copy, which has the annotations of its original, is told by it."""
ANNOTATION_LISTENERS: Final = "trellis.dev/listeners"
"""On a Service: which port is which component's, ``http=httpserver``: the names of ports stay."""
ANNOTATION_CACHED_LISTENERS: Final = "trellis.dev/cached-listeners"
"""On a Service: what listens, on which hosts, as JSON: its endpoints follow the hosts while its lattice is away."""
ANNOTATION_REFLECTED: Final = "trellis.dev/reflected"
"""On a Service: keys of the labels and annotations that the application gave it, joined by spaces."""
ANNOTATION_ADOPTING: Final = "trellis.dev/adopting"
"""On a Service that another made, ``true``: endpoints of others are still there, and are to go."""
ANNOTATION_PRESERVED: Final = "trellis.dev/preserved-allocation"
"""On one EndpointSlice of each Service: what that was given, as JSON; the slice has no owner, and outlives it."""
SLICE_MANAGED_BY: Final = "service-reflector.trellis.dev"
"""Value of :data:`LABEL_SLICE_MANAGED_BY` of our EndpointSlices."""
LABEL_SLICE_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
LABEL_SERVICE_NAME: Final = "kubernetes.io/service-name"
LABEL_NAME: Final = "app.kubernetes.io/name"

# --- of Applications, and what they and groups of hosts say of them ---
FINALIZER_APPLICATIONS: Final = "trellis.dev/application-manager"
"""On an Application: it stays until wadm does not have it any more."""
ANNOTATION_APP_NAME: Final = "trellis.dev/app-name"
"""On an Application: its name in wadm, where that is none for Kubernetes."""
LABEL_LATTICE: Final = "trellis.dev/lattice"
"""On an Application: name of its lattice, which is to be one of a group of hosts in its namespace."""
ANNOTATION_UNDEPLOY: Final = "trellis.dev/undeploy"
"""On an Application, ``true``: wadm keeps it and does not run it."""
ANNOTATION_LAST_SYNCED: Final = "trellis.dev/last-synced"
"""On an Application, ``<digest>/<serial>``: the manifest that it was given from wadm last, and after which base."""
ANNOTATION_HOME: Final = "trellis.dev/applications-home"
"""On a group of hosts, ``true``: what wash puts into its lattice is shown in its namespace."""
CONDITION_APPLICATIONS_SYNCED: Final = "ApplicationsSynced"
"""On a group of hosts, by application_manager: whether its lattice's applications are shown as wadm has them."""
TRUE: Final = "true"
TOMBSTONES: Final = "trellis-application-tombstones"
"""ConfigMap of the Applications that were let go while wadm had them."""

LABEL_BREAKER: Final = "trellis.dev/breaker"
"""On the ConfigMap that holds a service's breakers: the service, ``node-watcher``."""
_CONTROLLER_MANAGER_PREFIX: Final = "trellis.dev/controller/"
_FIELD_MANAGER_MAX: Final = 128
_BREAKER_PREFIX: Final = "trellis-breaker-"

_LABEL_VALUE_MAX: Final = 63
_NODE_PART_MAX: Final = 30
_HASH_LENGTH: Final = 10
_HASHED_MAX: Final = _LABEL_VALUE_MAX - _HASH_LENGTH - 1
_OBJECT_MAX: Final = 253
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOTTED_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def short_hash(*parts: str) -> str:
    """Return the first 10 hex digits of the SHA-256 over the parts, which are kept apart by a zero byte."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH_LENGTH]


def breaker_name(service: str) -> str:
    """Return the name of the ConfigMap that holds the breakers of a service (``node_watcher``)."""
    return _BREAKER_PREFIX + service.replace("_", "-")


def provisioned_label_value(node: str) -> str:
    """Return the value of :data:`LABEL_PROVISIONED` for a node name of up to 253 characters.

    A name that fits is used as it is (KWasm's behaviour). A longer one: its first 52 characters, ``-`` and a hash,
    63 characters in all.
    """
    if len(node) <= _LABEL_VALUE_MAX:
        return node
    return f"{node[: _LABEL_VALUE_MAX - _HASH_LENGTH - 1]}-{short_hash(node)}"


def shim_label(shim: str) -> str:
    """Return the label that a node bears while it has a Shim: its name, as runtime-class-manager has it.

    A Shim's name may have 253 characters, a label's 63: a longer one is cut to 52, ``-`` and a hash.
    """
    return provisioned_label_value(shim)


def service_name(application: str) -> str:
    """Return the name of an application's Service: its own, if that is a DNS label (RFC 1035) of ≤ 63 characters.

    Any other is made one, and ends in a hash over the application's whole name, so that no two meet.
    """
    if _SERVICE_NAME.fullmatch(application):
        return application
    part = re.sub(r"[^a-z0-9-]", "-", application.lower())[:_HASHED_MAX].strip("-")
    if not part[:1].isalpha():
        part = f"app-{part}"[:_HASHED_MAX].strip("-")
    return f"{part}-{short_hash(application)}"


def application_object(application: str) -> str:
    """Return the name of the object of an application of wadm's: its own, if Kubernetes takes that.

    Any other is made one of ≤ 63 characters that ends in a hash over the whole name, so that no two meet; the object's
    annotation :data:`ANNOTATION_APP_NAME` then has the name.
    """
    if len(application) <= _OBJECT_MAX and _OBJECT_NAME.fullmatch(application):
        return application
    return _hashed_object(application, short_hash(application))


def second_application_object(application: str, lattice: str) -> str:
    """Return the name of the object where another application's object has the plain one; ``lattice`` is a mark."""
    return _hashed_object(application, short_hash(lattice, application))


def _hashed_object(application: str, digest: str) -> str:
    part = re.sub(r"[^a-z0-9-]", "-", application.lower())[:_HASHED_MAX].strip("-") or "app"
    return f"{part}-{digest}"


def second_service_name(application: str, lattice: str) -> str:
    """Return the name of the Service of an application whose plain name another lattice's application has."""
    return f"{_second_prefix(application)}{short_hash(lattice, application)}"


def may_be_service_of(name: str, application: str) -> bool:
    """Say whether a Service of this name may be an application's, on any lattice."""
    return name == service_name(application) or name.startswith(_second_prefix(application))


def _second_prefix(application: str) -> str:
    return f"{service_name(application)[:_HASHED_MAX].rstrip('-')}-"


def slice_name(service: str, components: str, family: str, index: int) -> str:
    """Return the name of an EndpointSlice: ``<service, ≤ 52>-<h10>-<index>``."""
    return f"{service[:_HASHED_MAX].rstrip('-')}-{short_hash(service, components, family)}-{index}"


def controller_field_manager(namespace: str, name: str) -> str:
    """Return the field manager of a controller in Wasm: ``trellis.dev/controller/<namespace>/<name>``.

    A field manager may have 128 characters: a longer one is cut, and ends in a hash over the whole.
    """
    plain = f"{_CONTROLLER_MANAGER_PREFIX}{namespace}/{name}"
    if len(plain) <= _FIELD_MANAGER_MAX:
        return plain
    return f"{plain[: _FIELD_MANAGER_MAX - _HASH_LENGTH - 1]}-{short_hash(namespace, name)}"


def impersonation_role(account: str) -> str:
    """Return the name of the Role that lets secrets_backend be a ServiceAccount of its namespace, or a user."""
    return _role(IMPERSONATION_PREFIX, account)


def controller_role(account: str) -> str:
    """Return the name of the Role that lets controller_host be a ServiceAccount of its namespace."""
    return _role(CONTROLLER_ROLE_PREFIX, account)


def controller_watch_role(account: str) -> str:
    """Return the name of the Role that lets an account see what its controllers watch."""
    return _role(CONTROLLER_WATCH_ROLE_PREFIX, account)


def reader_role(account: str) -> str:
    """Return the name of the Role that lets an account read Secrets of its namespace."""
    return _role(READER_ROLE_PREFIX, account)


def _role(prefix: str, account: str) -> str:
    """Return the prefix and the account; what is no object's name, or too long for one, ends in a hash over it."""
    plain = prefix + account
    if len(plain) <= _OBJECT_MAX and _DOTTED_NAME.fullmatch(account):
        return plain
    part = re.sub(r"[^a-z0-9-]", "-", account.lower())[:_HASHED_MAX].strip("-") or "user"
    return f"{prefix}{part}-{short_hash(account)}"


def registry_secret(group: str) -> str:
    """Return the name of the Secret that we make of a registry's credentials for a group (63 characters at most)."""
    return f"{group}-registry"


def canary_name(node: str, job_uid: str, shim: str) -> str:
    """Return the name of the pod that tries a Shim after a Job: ``<node, ≤ 30>-<h10>-canary``, ≤ 48 characters."""
    return f"{_node_part(node)}-{short_hash(job_uid, shim)}-canary"


def canary_class(shim_uid: str, handler: str) -> str:
    """Return the name of the RuntimeClass of a Shim's canaries: ``trellis-canary-<handler>-<h10>``.

    A handler is one DNS label. The hash keeps two Shims of one handler apart.
    """
    return f"trellis-canary-{handler}-{short_hash(shim_uid, handler)}"


def installer_job_name(node: str, uid: str, digest: str, operation: str, attempt: int) -> str:
    """Return the name of the Job that works on one node: ``<node, ≤ 30>-<h10>-provision-kwasm``, ≤ 57 characters.

    The hash is over uid, digest, operation and attempt: a Job is immutable, so each of them makes a new one. Dots
    become dashes, because a pod's host name must be one DNS label.
    """
    return f"{_node_part(node)}-{short_hash(uid, digest, operation, str(attempt))}-{JOB_SUFFIX}"


def _node_part(node: str) -> str:
    return re.sub(r"[^a-z0-9-]", "-", node.lower())[:_NODE_PART_MAX].strip("-") or "node"

"""Labels, annotations, field managers and object names that Trellis writes or reads.

Pure: strings in, strings out. Called by services, the command line and tests; no other module spells these names.
Invariant: each function returns a name that is valid in Kubernetes for every valid input.
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
"""Manager of the ``spec`` of an Application created from wadm. Other managers of its fields are users or their tools.
"""
FIELD_MANAGER_COMMAND_LINE: Final = "trellis.dev/command-line"
FIELD_MANAGER_CHART: Final = "trellis.dev/chart"
"""Manager of the default Shim that a Job of the chart applies."""

# --- names of KWasm, kept because nodes and manifests of users have them ---
ANNOTATION_OPT_IN: Final = "kwasm.sh/kwasm-node"
LABEL_PROVISIONED: Final = "kwasm.sh/kwasm-provisioned"
"""Label of a provisioned node. Its value is the name of the node, shortened to 63 characters; then the annotation of
the same key has the full name.
"""
LABEL_JOB: Final = "kwasm.sh/job"
JOB_CONTAINER: Final = "kwasm-provision"
JOB_REMOVAL_CONTAINER: Final = "remove-first"
JOB_SUFFIX: Final = "provision-kwasm"

LABEL_KWASM_DEFAULT: Final = "trellis.dev/kwasm-default"
"""On a Shim, ``true``: the provisioner installs it on nodes that opt in by the annotation of KWasm."""

SHIM_PROVISIONED: Final = "provisioned"
"""Value of the label ``<shim>`` of a node, as runtime-class-manager sets it."""

FINALIZER: Final = "trellis.dev/provisioner"
"""On a Shim: blocks its deletion until no node has it."""

# --- on Nodes ---
LABEL_WASM_READY: Final = "trellis.dev/wasm"
WASM_READY: Final = "ready"
ANNOTATION_DIGEST: Final = "trellis.dev/kwasm-digest"
"""Digest of the installed specification (16 hex digits)."""
ANNOTATION_SHIMS: Final = "trellis.dev/shims"
"""Digests by Shim name: ``slight=<digest> spin=<digest>``. On a Node the verified state, on a Job the target state."""
ANNOTATION_VERIFIED: Final = "trellis.dev/verified"
"""Kind of the verification, on a Node and on a Job: ``canary``, ``handler`` or ``job``."""
ANNOTATION_NODE_UID: Final = "trellis.dev/node-uid"
"""UID of the Node that the other annotations refer to: a node replaced under the same name starts from nothing."""
ANNOTATION_FAILURE: Final = "trellis.dev/provision-failure"
"""Reason and message of the last failure, with the last log lines of the installer."""
ANNOTATION_FAILED_ATTEMPT: Final = "trellis.dev/provision-failed-attempt"
"""``<digest>/<attempt>/<unix seconds>`` of the last failure. Preserves the number of attempts over restarts."""

ANNOTATION_BLAMED: Final = "trellis.dev/failed-shims"
"""Digests of failed Shims, as in :data:`ANNOTATION_SHIMS`. On a Node of the last failures, on a Job of its own."""

# --- on the objects of an installation ---
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
PART_OF: Final = "trellis"
"""Value of :data:`LABEL_PART_OF`, also if the chart's values change the names of the objects."""

# --- on installer Jobs ---
LABEL_NODE_UID: Final = "trellis.dev/node-uid"
LABEL_DIGEST: Final = "trellis.dev/digest"
LABEL_OPERATION: Final = "trellis.dev/operation"
LABEL_ATTEMPT: Final = "trellis.dev/attempt"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "trellis"
ANNOTATION_NODE: Final = "trellis.dev/node"
"""Full name of the node of a Job (a label value has at most 63 characters)."""
ANNOTATION_HANDLER: Final = "trellis.dev/handler"
"""Runtime handlers that the Job installs, joined by commas; absent for a KWasm-compatible image without a known one."""
ANNOTATION_REMOVED_HANDLERS: Final = "trellis.dev/removed-handlers"
"""Runtime handlers that a Job removes, joined by commas."""
ANNOTATION_TRACEPARENT: Final = "trellis.dev/traceparent"
ANNOTATION_JOB_FAILURE: Final = "trellis.dev/failure"
"""Reason and message of a failed Job: ``<Reason>: <message>``. Written before the event is published."""
ANNOTATION_DISRUPTIVE: Final = "trellis.dev/disruptive"
"""``true`` on a failed Job: the failed step restarted the container runtime of the node, so the retry is delayed."""
ANNOTATION_UNCONFIRMED: Final = "trellis.dev/unconfirmed-shims"
"""On a Job: Shims that may already be on the node although no annotation names them, joined by commas."""
ANNOTATION_CANARIES: Final = "trellis.dev/canaries"
"""Shims whose canary pod must succeed before the Job counts as successful, joined by commas."""
ANNOTATION_ROLLS_BACK: Final = "trellis.dev/rolls-back"
"""On a Job that rolls a node back: the cause, as ``<Reason>: <message>``."""

# --- on canary pods ---
LABEL_CANARY: Final = "trellis.dev/canary"
LABEL_JOB_UID: Final = "trellis.dev/job-uid"
ANNOTATION_SHIM: Final = "trellis.dev/shim"
"""Full name of the Shim of a canary pod (a label value has at most 63 characters)."""
CANARY_CONTAINER: Final = "canary"

# --- containers and ledger ---
NODE_ROOT: Final = "/mnt/node-root"
INSTALLER_SPEC: Final = "TRELLIS_INSTALLER_SPEC"
"""Environment variable with the specification of the Trellis installer, as JSON."""
LEDGER: Final = "trellis-rollout-ledger"
LABEL_LEDGER: Final = "trellis.dev/ledger"
"""``true`` on the ledger."""
ANNOTATION_HALTED: Final = "trellis.dev/halted"
"""On the ledger: Shims whose rollout is halted because too many nodes failed, joined by commas."""
ANNOTATION_HALT_PUBLISHED: Final = "trellis.dev/halt-published"
"""On the ledger: Shims whose halt was published, joined by commas; removed when its end was published."""
ANNOTATION_ACKNOWLEDGED: Final = "trellis.dev/failures-acknowledged-at"
"""On a Shim, Unix seconds: failures up to this time do not halt its rollout, and are retried immediately. Set when a
user resumes the rollout, to the time of the last failure that they saw."""
ANNOTATION_TAKEN_OVER: Final = "trellis.dev/taken-over"
"""On the Deployment of another operator, ``true``: Trellis works although that operator runs. Set by a user."""
LABEL_SHIM: Final = "trellis.dev/shim"
"""On the ControllerRevisions and RuntimeClasses of a Shim: its name, as :func:`shim_label` shortens it."""
LABEL_SHIM_PREFIX: Final = "shim.trellis.dev/"
"""Label prefix, followed by the name of a Shim as :func:`shim_label` shortens it: ``true`` on each installer Job and
its pod that change this Shim. A Job can change several."""
LEASE_PREFIX: Final = "trellis-"
ANNOTATION_HOLDER: Final = "trellis.dev/holder"
"""On a Lease: its last holder that belongs to Trellis. Other software that takes the Lease does not change it."""
LEASE_NODES: Final = "trellis-nodes"
"""Lease of the installation that provisions the Nodes of a cluster."""
CLAIM_NAMESPACE: Final = "kube-system"
"""Namespace of that Lease: it exists in every cluster, and users with access to a single namespace cannot write to it.
"""
WAITING_PREFIX: Final = "waiting.trellis.dev/"
"""Annotation prefix on that Lease, followed by the namespace of a waiting installation: its last activity, RFC 3339."""
# --- of host groups: names of wasmcloud-operator, kept because running pods have them ---
WASMCLOUD_OPERATOR: Final = "operator.k8s.wasmcloud.dev/wasmcloud-host-config"
"""Finalizer of wasmcloud-operator on a WasmCloudHostConfig, and its field manager."""
WASMCLOUD_OPERATOR_SERVICE: Final = "operator.k8s.wasmcloud.dev/service"
"""Finalizer of wasmcloud-operator on a reflected Service."""
WADM_OPERATOR: Final = "wadm-operator"
"""Value of :data:`LABEL_MANAGED_BY` on the pods of wasmcloud-operator."""
HOST_LABEL_PREFIX: Final = "host-label.k8s.wasmcloud.dev/"
"""Prefix of pod labels that become labels of the host."""
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
"""On a pod: its host group."""

# --- on host groups ---
FINALIZER_HOSTS: Final = "trellis.dev/host-manager"
ANNOTATION_TEMPLATE: Final = "trellis.dev/template"
"""On a host group, ``latest``: host_manager rolls its pods to the current pod template of Trellis."""
TEMPLATE_LATEST: Final = "latest"
ANNOTATION_CHECKSUM: Final = "trellis.dev/checksum"
"""On a pod template: checksum of the Secrets and ConfigMaps that its pods use."""
LABEL_TEMPLATE: Final = "trellis.dev/template"
"""On a Deployment or DaemonSet: ``<revision>.<digest>`` of its pod template and of its inputs. A label, because a
changed annotation increases the generation of a Deployment."""
LABEL_APPLIED: Final = "trellis.dev/applied"
"""On a child of a host group: digest of the applied manifest."""

# --- of secrets for components ---
SECRETS_KEY: Final = "trellis-secrets-xkey"
"""Secret with the curve key of secrets_backend, in the namespace of the installation."""
SECRETS_SEED: Final = "seed"
"""In its data: seed (SX…) of the key that hosts receive."""
SECRETS_PREVIOUS: Final = "previous"
"""In its data: seeds of former keys that still decrypt requests, one per line, newest first."""
ANNOTATION_ROTATED: Final = "trellis.dev/rotated"
"""On it, RFC 3339: time of the last key rotation. Hosts started earlier may have only a former key."""
SECRETS_ACCOUNT: Final = "wasmcloud-secrets"
"""ServiceAccount that reads Secrets if a policy names none."""
IMPERSONATION_PREFIX: Final = "trellis-impersonate-"
"""Prefix of Roles that allow secrets_backend to impersonate an account."""
CONTROLLER_ROLE_PREFIX: Final = "trellis-controller-"
"""Prefix of Roles that allow controller_host to impersonate an account. The services share no Role: a binding has one
list of subjects."""
CONTROLLER_WATCH_ROLE_PREFIX: Final = "trellis-watcher-"
"""Prefix of Roles that allow an account to watch the objects of its controllers."""
READER_ROLE_PREFIX: Final = "trellis-reader-"
"""Prefix of Roles that allow an account to read the Secrets that secrets_backend provides."""
ANNOTATION_RESTART_ON: Final = "trellis.dev/restart-on"
"""On a host group, ``secretChange``: host_manager rolls its pods when a Secret that its components received changes."""
RESTART_ON_CHANGE: Final = "secretChange"
ANNOTATION_RESTARTED_FOR: Final = "trellis.dev/restarted-for"
"""On a pod template: Secrets that caused the last restart, ``<namespace>/<name>=<resourceVersion> …``."""
ANNOTATION_RESTARTED_AT: Final = "trellis.dev/restarted-at"
"""On a pod template, RFC 3339: time of the last restart for changed Secrets."""
ANNOTATION_PODS_RETRIED: Final = "trellis.dev/pods-retried"
"""On the Deployment or DaemonSet of a host group, RFC 3339: last request to its controller to retry rejected pods."""

# --- of reflected Services; the first are annotations of the application ---
ANNOTATION_SERVICE: Final = "trellis.dev/service"
"""``false``: service_reflector creates no Service for the application."""
ANNOTATION_SERVICE_PORTS: Final = "trellis.dev/service-ports"
"""Ports of capabilities other than wasi:http: ``db=5432,cache=6379/tcp,web=8080/http``."""
ANNOTATION_SERVICE_NAMESPACE: Final = "trellis.dev/service-namespace"
"""Namespace of the Service, instead of the namespace of the host groups of the lattice."""
ANNOTATION_SERVICE_TYPE: Final = "trellis.dev/service-type"
ANNOTATION_SERVICE_AFFINITY: Final = "trellis.dev/service-session-affinity"
ANNOTATION_SERVICE_GATEWAY: Final = "trellis.dev/service-gateway"
"""Gateway of the HTTPRoute: ``<name>`` or ``<namespace>/<name>``."""
ANNOTATION_SERVICE_HOSTNAMES: Final = "trellis.dev/service-hostnames"
"""Host names of the HTTPRoute, joined by commas."""
SERVICE_LABEL_PREFIX: Final = "service-label.trellis.dev/"
"""Prefix of annotations of the application that become labels of its Service."""
SERVICE_ANNOTATION_PREFIX: Final = "service-annotation.trellis.dev/"
"""Prefix of annotations of the application that become annotations of its Service."""

ANNOTATION_APPLICATION: Final = "trellis.dev/application"
"""On a Service: the reflected application."""
ANNOTATION_LATTICE: Final = "trellis.dev/lattice"
"""On a Service: lattice of its application, ``<name>/<digest of the NATS address and account>``."""
ANNOTATION_HOST_GROUPS: Final = "trellis.dev/host-groups"
"""On a Service: ``namespace/name`` of the host groups on its lattice, joined by spaces. They decide about changes."""
ANNOTATION_REFLECTED_AS: Final = "trellis.dev/reflected-as"
"""On a Service: its own ``namespace/name``. It distinguishes the original from a copy with the same annotations."""
ANNOTATION_LISTENERS: Final = "trellis.dev/listeners"
"""On a Service: component of each port, ``http=httpserver``, so that the names of ports stay."""
ANNOTATION_CACHED_LISTENERS: Final = "trellis.dev/cached-listeners"
"""On a Service: listeners and their hosts as JSON. Endpoints follow the hosts while the lattice is unreachable."""
ANNOTATION_REFLECTED: Final = "trellis.dev/reflected"
"""On a Service: keys of its labels and annotations from the application, joined by spaces."""
ANNOTATION_ADOPTING: Final = "trellis.dev/adopting"
"""On an adopted Service, ``true``: endpoints of another controller still exist and are to be deleted."""
ANNOTATION_PRESERVED: Final = "trellis.dev/preserved-allocation"
"""On one EndpointSlice of each Service: allocated addresses and ports as JSON. The slice has no owner and outlives it.
"""
SLICE_MANAGED_BY: Final = "service-reflector.trellis.dev"
"""Value of :data:`LABEL_SLICE_MANAGED_BY` on EndpointSlices of Trellis."""
LABEL_SLICE_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
LABEL_SERVICE_NAME: Final = "kubernetes.io/service-name"
LABEL_NAME: Final = "app.kubernetes.io/name"

# --- of Applications ---
FINALIZER_APPLICATIONS: Final = "trellis.dev/application-manager"
"""On an Application: blocks its deletion until wadm deleted it."""
ANNOTATION_APP_NAME: Final = "trellis.dev/app-name"
"""On an Application: its name in wadm, if that is invalid in Kubernetes."""
LABEL_LATTICE: Final = "trellis.dev/lattice"
"""On an Application: name of its lattice, which needs a host group in the same namespace."""
ANNOTATION_UNDEPLOY: Final = "trellis.dev/undeploy"
"""On an Application, ``true``: wadm keeps it undeployed."""
ANNOTATION_LAST_SYNCED: Final = "trellis.dev/last-synced"
"""On an Application, ``<digest>/<serial>``: last manifest synced from wadm, and its base."""
ANNOTATION_HOME: Final = "trellis.dev/applications-home"
"""On a host group, ``true``: Applications deployed to its lattice by wash are created in its namespace."""
CONDITION_APPLICATIONS_SYNCED: Final = "ApplicationsSynced"
"""On a host group, by application_manager: the Applications of its lattice are in sync with wadm."""
TRUE: Final = "true"
LABEL_MIGRATED_FROM: Final = "trellis.dev/migrated-from"
"""On objects of wasmCloud v2 that ``trellis migrate to-v2`` wrote: their application, as :func:`service_name` names it.
"""
FIELD_MANAGER_TO_V2: Final = "trellis.dev/migrate-to-v2"
TOMBSTONES: Final = "trellis-application-tombstones"
"""ConfigMap of the Applications whose finalizer was removed while wadm still had them."""

LABEL_CIRCUIT_BREAKER: Final = "trellis.dev/circuit-breaker"
"""On the ConfigMap with the circuit breakers of a service: the service, ``node-watcher``."""
_CONTROLLER_MANAGER_PREFIX: Final = "trellis.dev/controller/"
_FIELD_MANAGER_MAX: Final = 128
_CIRCUIT_BREAKER_PREFIX: Final = "trellis-circuit-breaker-"

_LABEL_VALUE_MAX: Final = 63
_NODE_PART_MAX: Final = 30
_HASH_LENGTH: Final = 10
_HASHED_MAX: Final = _LABEL_VALUE_MAX - _HASH_LENGTH - 1
_OBJECT_MAX: Final = 253
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOTTED_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def short_hash(*parts: str) -> str:
    """Return the first 10 hex digits of the SHA-256 over the parts, which are separated by a zero byte."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH_LENGTH]


def circuit_breaker_name(service: str) -> str:
    """Return the name of the ConfigMap with the circuit breakers of a service (``node_watcher``)."""
    return _CIRCUIT_BREAKER_PREFIX + service.replace("_", "-")


def provisioned_label_value(node: str) -> str:
    """Return the value of :data:`LABEL_PROVISIONED` for a node name of up to 253 characters.

    A name of up to 63 characters is unchanged (as in KWasm). A longer one becomes its first 52 characters, ``-`` and a
    hash, 63 characters in total.
    """
    if len(node) <= _LABEL_VALUE_MAX:
        return node
    return f"{node[: _LABEL_VALUE_MAX - _HASH_LENGTH - 1]}-{short_hash(node)}"


def shim_label(shim: str) -> str:
    """Return the label of a node with a Shim: the name of the Shim, as in runtime-class-manager.

    Names of Shims have up to 253 characters, labels 63: a longer name is cut to 52, ``-`` and a hash.
    """
    return provisioned_label_value(shim)


def service_name(application: str) -> str:
    """Return the name of the Service of an application: its own name if that is a DNS label (RFC 1035).

    Other names are converted and end with a hash over the full name of the application, so that they are unique.
    """
    if _SERVICE_NAME.fullmatch(application):
        return application
    part = re.sub(r"[^a-z0-9-]", "-", application.lower())[:_HASHED_MAX].strip("-")
    if not part[:1].isalpha():
        part = f"app-{part}"[:_HASHED_MAX].strip("-")
    return f"{part}-{short_hash(application)}"


def application_object(application: str) -> str:
    """Return the name of the object of an application of wadm: its own name if that is valid in Kubernetes.

    Other names are converted to ≤ 63 characters and end with a hash over the full name, so that they are unique; the
    annotation :data:`ANNOTATION_APP_NAME` then has the full name.
    """
    if len(application) <= _OBJECT_MAX and _OBJECT_NAME.fullmatch(application):
        return application
    return _hashed_object(application, short_hash(application))


def second_application_object(application: str, lattice: str) -> str:
    """Return the name of the object if another application has the plain one; ``lattice`` is a lattice ID."""
    return _hashed_object(application, short_hash(lattice, application))


def _hashed_object(application: str, digest: str) -> str:
    part = re.sub(r"[^a-z0-9-]", "-", application.lower())[:_HASHED_MAX].strip("-") or "app"
    return f"{part}-{digest}"


def second_service_name(application: str, lattice: str) -> str:
    """Return the name of the Service if an application of another lattice has the plain name."""
    return f"{_second_prefix(application)}{short_hash(lattice, application)}"


def may_be_service_of(name: str, application: str) -> bool:
    """Return whether a Service of this name may belong to an application, on any lattice."""
    return name == service_name(application) or name.startswith(_second_prefix(application))


def _second_prefix(application: str) -> str:
    return f"{service_name(application)[:_HASHED_MAX].rstrip('-')}-"


def slice_name(service: str, components: str, family: str, index: int) -> str:
    """Return the name of an EndpointSlice: ``<service, ≤ 52>-<h10>-<index>``."""
    return f"{service[:_HASHED_MAX].rstrip('-')}-{short_hash(service, components, family)}-{index}"


def controller_field_manager(namespace: str, name: str) -> str:
    """Return the field manager of a WasmController: ``trellis.dev/controller/<namespace>/<name>``.

    A longer name than 128 characters is cut and ends with a hash over the full name.
    """
    plain = f"{_CONTROLLER_MANAGER_PREFIX}{namespace}/{name}"
    if len(plain) <= _FIELD_MANAGER_MAX:
        return plain
    return f"{plain[: _FIELD_MANAGER_MAX - _HASH_LENGTH - 1]}-{short_hash(namespace, name)}"


def impersonation_role(account: str) -> str:
    """Return the name of the Role that allows secrets_backend to impersonate a ServiceAccount or user."""
    return _role(IMPERSONATION_PREFIX, account)


def controller_role(account: str) -> str:
    """Return the name of the Role that allows controller_host to impersonate a ServiceAccount."""
    return _role(CONTROLLER_ROLE_PREFIX, account)


def controller_watch_role(account: str) -> str:
    """Return the name of the Role that allows an account to watch the objects of its controllers."""
    return _role(CONTROLLER_WATCH_ROLE_PREFIX, account)


def reader_role(account: str) -> str:
    """Return the name of the Role that allows an account to read Secrets of its namespace."""
    return _role(READER_ROLE_PREFIX, account)


def _role(prefix: str, account: str) -> str:
    """Return prefix and account; an invalid or too long name is converted and ends with a hash over the account."""
    plain = prefix + account
    if len(plain) <= _OBJECT_MAX and _DOTTED_NAME.fullmatch(account):
        return plain
    part = re.sub(r"[^a-z0-9-]", "-", account.lower())[:_HASHED_MAX].strip("-") or "user"
    return f"{prefix}{part}-{short_hash(account)}"


def registry_secret(group: str) -> str:
    """Return the name of the Secret with registry credentials for a host group (at most 63 characters)."""
    return f"{group}-registry"


def canary_name(node: str, job_uid: str, shim: str) -> str:
    """Return the name of the canary pod of a Shim after a Job: ``<node, ≤ 30>-<h10>-canary``, ≤ 48 characters."""
    return f"{_node_part(node)}-{short_hash(job_uid, shim)}-canary"


def canary_class(shim_uid: str, handler: str) -> str:
    """Return the name of the RuntimeClass of a Shim's canaries: ``trellis-canary-<handler>-<h10>``.

    A handler is a DNS label. The hash distinguishes Shims with the same handler.
    """
    return f"trellis-canary-{handler}-{short_hash(shim_uid, handler)}"


def installer_job_name(node: str, uid: str, digest: str, operation: str, attempt: int) -> str:
    """Return the name of the installer Job of a node: ``<node, ≤ 30>-<h10>-provision-kwasm``, ≤ 57 characters.

    The hash is over UID, digest, operation and attempt: a Job is immutable, so a change of any needs a new Job. Dots
    become dashes, because the host name of a pod is a DNS label.
    """
    return f"{_node_part(node)}-{short_hash(uid, digest, operation, str(attempt))}-{JOB_SUFFIX}"


def _node_part(node: str) -> str:
    return re.sub(r"[^a-z0-9-]", "-", node.lower())[:_NODE_PART_MAX].strip("-") or "node"

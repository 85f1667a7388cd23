"""Reasons of health and causes of wasmCloud v2, in CamelCase as in conditions. Pure values."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The reason why an object is not healthy."""

    # The operator and its connections.
    OPERATOR_UNAVAILABLE = "OperatorUnavailable"
    """Heartbeats arrive on NATS, and the operator does not record them; or its Hosts expired long ago."""
    NOT_OBSERVED = "NotObserved"
    """The operator has not acted on a change yet."""
    NATS_UNREACHABLE = "NatsUnreachable"
    """The operator does not reach NATS."""
    HEARTBEATS_STOPPED = "HeartbeatsStopped"
    """The heartbeats of all hosts ended at about the same moment: NATS or the operator is unavailable."""

    # Hosts.
    NO_HOST = "NoHost"
    NO_HOST_MATCHES = "NoHostMatches"
    NO_HOST_READY = "NoHostReady"
    HOSTS_UNKNOWN = "HostsUnknown"
    HOST_NOT_FOUND = "HostNotFound"
    HEARTBEAT_MISSING = "HeartbeatMissing"
    HOST_BUSY = "HostBusy"
    """The host answers nothing while it pulls an image."""
    HOST_UNREACHABLE = "HostUnreachable"
    """The host sends heartbeats, and NATS delivers no request to it."""
    HOST_NOT_READY = "HostNotReady"
    UNKNOWN_WORKLOADS = "UnknownWorkloads"
    """The host runs workloads that have no Workload."""
    ENVIRONMENT_DENIED = "EnvironmentDenied"

    # Pods of host groups.
    POD_CRASHING = "PodCrashing"
    POD_PULL_FAILED = "PodPullFailed"
    POD_UNSCHEDULABLE = "PodUnschedulable"
    POD_FAILED = "PodFailed"
    """Any other problem of the kubelet, as an eviction or a missing ConfigMap."""
    POD_STARTING = "PodStarting"
    POD_NOT_READY = "PodNotReady"
    POD_WITHOUT_HOST = "PodWithoutHost"
    HOST_WITHOUT_POD = "HostWithoutPod"
    PODS_UNKNOWN = "PodsUnknown"

    # Images.
    IMAGE_NOT_FOUND = "ImageNotFound"
    IMAGE_INVALID = "ImageInvalid"
    IMAGE_NOT_CACHED = "ImageNotCached"
    """Its pull policy is Never, and its host has no copy."""
    REGISTRY_UNREACHABLE = "RegistryUnreachable"
    REGISTRY_TIMEOUT = "RegistryTimeout"
    REGISTRY_DENIED = "RegistryDenied"
    REGISTRY_NOT_TRUSTED = "RegistryNotTrusted"
    REGISTRY_WITHOUT_TLS = "RegistryWithoutTls"
    NOT_A_COMPONENT = "NotAComponent"
    PULL_FAILED = "PullFailed"

    # Contents, and number of Workloads.
    COMPONENTS_MISSING = "ComponentsMissing"
    """It has neither components nor a service: a host starts it, and runs nothing."""
    SPEC_CHANGED = "SpecChanged"
    """A Workload was changed in place: its host can run the spec from before."""
    SCALE_FAILED = "ScaleFailed"
    """The API server refuses to create or delete Workloads: admission, or a quota."""

    # Links and bindings.
    INTERFACE_MISSING = "InterfaceMissing"
    PLUGIN_MISSING = "PluginMissing"
    HTTP_HOST_MISSING = "HttpHostMissing"
    HTTP_HOST_INVALID = "HttpHostInvalid"
    START_FAILED = "StartFailed"

    # Configuration.
    CONFIG_MISSING = "ConfigMissing"
    CONFIG_INVALID = "ConfigInvalid"
    ARTIFACT_NOT_FOUND = "ArtifactNotFound"
    ARTIFACT_NOT_PUBLISHED = "ArtifactNotPublished"
    ARTIFACT_NOT_LISTED = "ArtifactNotListed"
    ARTIFACT_IN_USE = "ArtifactInUse"

    # Routing.
    SERVICE_NOT_FOUND = "ServiceNotFound"
    SERVICE_NEWER = "ServiceNewer"
    PORT_NOT_NAMED = "PortNotNamed"
    PORT_DIFFERS = "PortDiffers"
    ADDRESS_NOT_ROUTABLE = "AddressNotRoutable"
    NO_ENDPOINTS = "NoEndpoints"
    HTTP_NOT_DECLARED = "HttpNotDeclared"
    HANDLER_MISSING = "HandlerMissing"
    EGRESS_DENIED = "EgressDenied"

    # Progress.
    WAITING = "Waiting"
    ROLLING_OUT = "RollingOut"
    NOT_READY = "NotReady"
    DELETING = "Deleting"
    SCALED_TO_ZERO = "ScaledToZero"
    HEALTHY = "Healthy"
    SOURCE_NOT_READ = "SourceNotRead"
    """A source that the user requested could not be read."""
    READ_INCOMPLETE = "ReadIncomplete"
    """A part could not be read, so the state is unknown."""

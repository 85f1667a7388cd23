"""Reasons of health and causes of Wasm pods, in CamelCase as in conditions. Pure values.

Invariant: the order is that of the life of a pod. Of several causes, the one of the earliest step is named first.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The reason why a pod, or an owner of pods, does not work."""

    # Before there is a pod.
    EXECUTOR_MISSING = "ExecutorMissing"
    DEPLOYMENT_MISSING = "DeploymentMissing"
    RUNTIME_CLASS_MISSING = "RuntimeClassMissing"
    RUNTIME_CLASS_NOT_SET = "RuntimeClassNotSet"
    PODS_REFUSED = "PodsRefused"

    # Its node.
    NO_NODE_WITH_LABEL = "NoNodeWithLabel"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    UNSCHEDULABLE = "Unschedulable"
    NODE_NOT_READY = "NodeNotReady"
    HANDLER_NOT_CONFIGURED = "HandlerNotConfigured"

    # Its sandbox.
    VOLUME_NOT_MOUNTED = "VolumeNotMounted"
    SHIM_NOT_EXECUTABLE = "ShimNotExecutable"
    SANDBOX_FAILED = "SandboxFailed"

    # Its images.
    IMAGE_FOR_ANOTHER_PLATFORM = "ImageForAnotherPlatform"
    IMAGE_NOT_ACCEPTED = "ImageNotAccepted"
    PRECOMPILED_BY_ANOTHER_VERSION = "PrecompiledByAnotherVersion"
    IMAGE_NOT_FOUND = "ImageNotFound"
    REGISTRY_DENIED = "RegistryDenied"
    PULL_FAILED = "PullFailed"

    # Its containers.
    CONFIG_MISSING = "ConfigMissing"
    ENTRYPOINT_NOT_FOUND = "EntrypointNotFound"
    CONTAINER_NOT_CREATED = "ContainerNotCreated"
    INTERFACE_MISSING = "InterfaceMissing"
    TRIGGER_NOT_SUPPORTED = "TriggerNotSupported"
    OUT_OF_MEMORY = "OutOfMemory"
    SHIM_ERROR = "ShimError"
    """The shim ended the container by itself; the log of containerd has its error."""
    EXITED = "Exited"
    PROBE_FAILED = "ProbeFailed"
    POD_FAILED = "PodFailed"
    """The kubelet ended or rejected the pod, as in an eviction."""
    JOB_FAILED = "JobFailed"
    ROLLOUT_STALLED = "RolloutStalled"

    # Progress.
    WAITING = "Waiting"
    STARTING = "Starting"
    NOT_READY = "NotReady"
    PODS_UNKNOWN = "PodsUnknown"
    """The pods could not be read."""
    DELETING = "Deleting"
    SCALED_TO_ZERO = "ScaledToZero"
    SUSPENDED = "Suspended"
    HEALTHY = "Healthy"


ORDER = {reason: position for position, reason in enumerate(Reason)}
"""Position of each reason in the life of a pod."""

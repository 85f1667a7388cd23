"""Reasons of actions, Events and failed Jobs of provisioner.

Pure names. Written by ``provisioner``, read by ``trellis explain``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NODE_UPDATE_REFUSED: Final = "NodeUpdateRefused"
"""Reason of an Event on a Node: admission or RBAC rejects the updates of node_watcher. Also a reason of Shims."""

APPLY_AGAIN: Final = "apply the chart, or deploy/base, again"
"""Advice to restore permissions of the services, for example after their Roles were deleted with a namespace."""

NO_POD: Final = "no pod of its installer Job"
"""Prefix of the message of such an Event about the pod of an installer Job."""


class Reason(StrEnum):
    """Reason of an action, of Events and of failures."""

    CLAIMED = "SlotClaimed"
    PROVISION_SUCCEEDED = "ProvisionSucceeded"
    OPTED_OUT = "OptedOut"
    NODE_REPLACED = "NodeReplaced"
    SUPERSEDED = "JobSuperseded"
    INSTALLER_FAILED = "InstallerFailed"
    HANDLER_MISSING = "HandlerMissing"
    CANARY_FAILED = "CanaryFailed"
    VERIFICATION_FAILED = "VerificationFailed"
    NOT_STARTING = "InstallerNotStarting"
    JOB_REFUSED = "InstallerJobRefused"
    INSTALLER_REFUSED = "InstallerRefused"
    UPDATE_REFUSED = NODE_UPDATE_REFUSED
    JOB_CHANGED = "InstallerJobChanged"
    NODE_NOT_READY = "NodeNotReady"
    IN_USE = "RuntimeInUse"
    NOTHING_TO_INSTALL = "NothingToInstall"
    OTHER_CONTROLLER = "OtherControllerActive"
    DRAIN_BLOCKED = "DrainBlocked"
    INSTALLER_POD_STUCK = "InstallerPodStuck"
    FARGATE_NODE = "FargateNode"
    VIRTUAL_KUBELET_NODE = "VirtualKubeletNode"
    NODE_SCALING_DOWN = "NodeScalingDown"
    NODE_DELETING = "NodeDeleting"

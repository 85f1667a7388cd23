"""Reasons of actions, Events and failed Jobs of provisioner.

Pure names. Written by ``provisioner``, read by ``trellis explain``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NODE_UPDATE_REFUSED: Final = "NodeUpdateRefused"
"""Of an Event on a Node: admission or RBAC refuses what node_watcher writes there. Also a reason of Shims."""

APPLY_AGAIN: Final = "apply the chart, or deploy/base, again"
"""What gives back permissions of the services: their Roles go with a namespace, say."""

NO_POD: Final = "no pod of its installer Job"
"""How the message of such an Event begins that is about an installer's pod."""


class Reason(StrEnum):
    """Why an action is taken; also the reason of Events and of a failure's verdict."""

    CLAIMED = "SlotClaimed"
    PROVED = "ProvisionSucceeded"
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

"""Simulated installers: kwok stages by which the first part of a node's name says how its installer Jobs end.

``bad-…`` fails with a last log line; ``flaky-…`` fails on the first attempt only; ``hangs-…`` never ends;
``nopull-…`` cannot pull its image, nor can ``nosecret-…``, for want of the Secret ``absent``; ``acted-…`` runs until a
test writes the end into its pod's status; on ``sick-…`` installers succeed and canary pods fail, on ``sick-stuck-…`` so
do Jobs that take something back. Every other node's Jobs and canaries succeed (kwok's own stages).
So say a Shim's sources: an installation (no removal) from a location with ``hang-here`` never ends, with ``fail-here``
it fails, with ``take-5s`` it takes so long, with ``blame-here`` it names that Shim as what it failed because of, with
``other-file-here`` it finds another file than the one whose checksum it was given.
"""

from __future__ import annotations

from trellis.installer_api.result import FailureReason, InstallResult, Outcome, ShimResult
from trellis.installer_api.spec import Source, WantedShim
from trellis.provisioning.shims import wanted_shim_for
from trellis_dev.testing.builders import a_shim

PROBLEM = "it says nothing"
LAST_LOG_LINE = "cp: cannot create /mnt/node-root/opt/kwasm: Read-only file system"

_STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: installer-{name}
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.metadata.labels["{label}"]'
      operator: 'In'
      values: ['true']
    - key: '.status.phase'
      operator: 'In'
      values: ['{phase}']
    - key: '{key}'
      operator: 'In'
      values: ['{value}']
  weight: 1000
  {delay}
  next:
    statusTemplate: |
      {{{{ $now := Now }}}}
      {status}
  {event}
"""

_FAILED = """phase: Failed
      containerStatuses:
      - image: {{ (index .spec.containers 0).image | Quote }}
        name: {{ (index .spec.containers 0).name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state:
          terminated:
            exitCode: 3
            reason: Error
            message: "MESSAGE"
            finishedAt: {{ $now | Quote }}
            startedAt: {{ $now | Quote }}
""".replace("MESSAGE", LAST_LOG_LINE)

_NOT_PULLED = """phase: Pending
      containerStatuses:
      - image: {{ (index .spec.containers 0).image | Quote }}
        name: {{ (index .spec.containers 0).name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state:
          waiting:
            reason: ErrImagePull
            message: "no such image"
"""
_NO_SECRET = """  event:
      type: Warning
      reason: FailedToRetrieveImagePullSecret
      message: Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.
"""
"""As a kubelet of Kubernetes 1.36 says it."""
_FOR_EVER = "delay: {durationMilliseconds: 3600000}"


def _on(prefix: str) -> str:
    return f'.spec.nodeName | startswith("{prefix}-") | tostring'


def _stage(
    name: str,
    *,
    phase: str,
    key: str,
    value: str = "true",
    delay: str = "",
    status: str,
    event: str = "",
    label: str = "kwasm.sh/job",
) -> str:
    return _STAGE.format(
        name=name, phase=phase, key=key, value=value, delay=delay, status=status, event=event, label=label
    )


_STUCK = '(.spec.nodeName | startswith("sick-stuck-") | tostring) + .metadata.labels["trellis.dev/operation"]'
_FLAKY = '(.spec.nodeName | startswith("flaky-") | tostring) + .metadata.labels["trellis.dev/attempt"]'


def _from(where: str) -> str:
    expression = f'[.spec.containers[0].env[] | .value // "" | contains("{where}")] | any | tostring'
    return f'.metadata.labels["trellis.dev/operation"] + ({expression})'


_INSTALLS = "provisiontrue"

GUILTY = wanted_shim_for(
    a_shim(handler="guilty", sources=(Source("https://example.com/blame-here", None, "ab" * 32),)),
    "amd64",
    require_checksum=True,
)
assert isinstance(GUILTY, WantedShim)
"""What the installer blames where a source says ``blame-here``: of this handler the version from there."""
_BLAMED = _FAILED.replace(
    f'"{LAST_LOG_LINE}"',
    "'"
    + InstallResult(
        "install",
        Outcome.FAILED,
        FailureReason.SHIM_NOT_EXECUTABLE,
        "it does not run",
        shims=(ShimResult(GUILTY.handler, GUILTY.digest, problem=PROBLEM),),
    ).to_line()
    + "'",
)

_MISMATCH = _FAILED.replace(
    f'"{LAST_LOG_LINE}"',
    "'"
    + InstallResult(
        "install",
        Outcome.FAILED,
        FailureReason.CHECKSUM_MISMATCH,
        f"https://example.com/other-file-here.tar.gz should have the SHA-256 {'ab' * 32} and has {'cd' * 32}: it is "
        "another file, or was changed",
    ).to_line()
    + "'",
)

INSTALLER_STAGES = (
    _stage("other-file", phase="Pending", key=_from("other-file-here"), value=_INSTALLS, status=_MISMATCH),
    _stage("blame-here", phase="Pending", key=_from("blame-here"), value=_INSTALLS, status=_BLAMED),
    _stage("fail-here", phase="Pending", key=_from("fail-here"), value=_INSTALLS, status=_FAILED),
    _stage("hang-here", phase="Running", key=_from("hang-here"), value=_INSTALLS, delay=_FOR_EVER, status="{}"),
    _stage(
        "take-5s",
        phase="Running",
        key=_from("take-5s"),
        value=_INSTALLS,
        delay="delay: {durationMilliseconds: 5000}",
        status="phase: Succeeded",
    ),
    _stage("bad", phase="Pending", key=_on("bad"), status=_FAILED),
    _stage("flaky", phase="Pending", key=_FLAKY, value="true1", status=_FAILED),
    _stage("hangs", phase="Running", key=_on("hangs"), delay=_FOR_EVER, status="phase: Running"),
    _stage("acted", phase="Running", key=_on("acted"), delay=_FOR_EVER, status="phase: Running"),
    _stage("sick", phase="Pending", key=_on("sick"), status=_FAILED, label="trellis.dev/canary"),
    _stage("stuck", phase="Pending", key=_STUCK, value="trueundo", status=_FAILED),
    _stage("nopull", phase="Pending", key=_on("nopull"), status=_NOT_PULLED),
    _stage("nosecret", phase="Pending", key=_on("nosecret"), status=_NOT_PULLED, event=_NO_SECRET),
)

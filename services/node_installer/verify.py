"""Verifies on the node that a shim is unchanged, can run and is configured.

In: an inspection, a specification. Out: one result per shim, with its problem. Called by ``operations``.
Invariant: "verified" means all of these: the digest of the file on disk, an answer within 5 s, the entry in the
configuration, and, if the running runtime reports its handlers, this handler.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from node_installer.domain import target
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection
from node_installer.domain.state import ShimState
from node_installer.node.commands import TIMED_OUT, Run
from trellis.installer_api.result import FailureReason, ShimResult
from trellis.installer_api.spec import InstallSpec, WantedShim

ANSWER_SECONDS: Final = 5.0
_VERSION = re.compile(r"version:?\s*v?(\d[\w.+-]*)", re.IGNORECASE)


def check_runs(run: Run, path: str, clock: Callable[[], float] = time.monotonic) -> str:
    """Return the version that a shim reports, "" if it reports none.

    Every shim of containerd answers ``-v``, or ``-info`` (containerd 2's), without any other effect. Both must end:
    containerd 2 runs every shim in its configuration with ``-info`` when it starts, and waits without a timeout.

    Raises:
        InstallError: ``ShimNotExecutable``, with the output of the shim.
    """
    deadline = clock() + ANSWER_SECONDS
    output, version = "", None
    for argument in ("-v", "-info"):
        answer = run((path, argument), max(0.1, deadline - clock()))
        if answer.code == TIMED_OUT:
            message = f"{path} does not run on this node: `{argument}` did not end, and containerd would wait for it"
            raise InstallError(FailureReason.SHIM_NOT_EXECUTABLE, message)
        if answer.ok and version is None:
            found = _VERSION.search(answer.output)
            version = found[1] if found else ""
        output = output or answer.output or f"exit code {answer.code}"
    if version is not None:
        return version
    message = f"{path} does not run on this node ({' '.join(output.split())[:300]}): is it built for its C library?"
    raise InstallError(FailureReason.SHIM_NOT_EXECUTABLE, message)


def verify(found: Inspection, spec: InstallSpec | None, run: Run) -> tuple[ShimResult, ...]:
    """Return the result of each shim of the specification, or of every shim of Trellis without one."""
    defined = target.definitions(found, target.choose(found))
    if spec is None:
        return tuple(
            _verified(found, handler, shim, defined, run) for handler, shim in sorted(found.state.shims.items())
        )
    results = []
    for wanted in spec.shims:
        shim = found.state.shims.get(wanted.handler)
        problem = "it is not installed" if shim is None else _differs(found, wanted, shim)
        if shim is None or problem:
            results.append(ShimResult(wanted.handler, wanted.digest, problem=problem))
        else:
            results.append(_verified(found, wanted.handler, shim, defined, run))
    return tuple(results)


def _differs(found: Inspection, wanted: WantedShim, shim: ShimState) -> str:
    if shim.digest != wanted.digest:
        return f"version {shim.digest} is installed, not {wanted.digest}"
    source = wanted.source_for(found.arch)
    if source and source.binary_sha256 and source.binary_sha256 != shim.sha256:
        return f"it has the SHA-256 {shim.sha256}, not {source.binary_sha256}"
    return ""


def _verified(
    found: Inspection, handler: str, shim: ShimState, defined: dict[str, dict[str, str]], run: Run
) -> ShimResult:
    version, problem = "", _disk_problem(found, shim)
    if not problem:
        try:
            version = check_runs(run, shim.path)
        except InstallError as error:
            problem = error.message
    if not problem and not any(runtimes.get(handler) == shim.path for runtimes in defined.values()):
        problem = "no configuration file of the runtime names it"
    runtimes = found.live.runtimes if found.live else None
    if not problem and runtimes is not None and runtimes.get(handler) != shim.path:
        problem = "the running containerd does not have its handler: it must be restarted"
    if not problem and found.live is None:
        problem = "the container runtime does not answer on its socket"
    return ShimResult(handler, shim.digest, shim.sha256, version, not problem, problem)


def _disk_problem(found: Inspection, shim: ShimState) -> str:
    present = found.binaries.get(shim.path)
    if present is None:
        return f"{shim.path} is missing"
    if present == "":
        return f"{shim.path} is not executable"
    if present != shim.sha256:
        return f"{shim.path} was changed: it has the SHA-256 {present}, not {shim.sha256}"
    return ""

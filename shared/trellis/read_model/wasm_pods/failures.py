"""Classifies the errors of the scheduler, the kubelet, containerd, shims and Wasmtime by their texts.

Pure. In: a message of an Event or a container, lines of a log. Out: the kind of failure and the names in it. Called by
the checks of a page. Invariants: nothing raises; a text of an unknown form has no failure, so that its step shows the
text itself. None of these programs reports a code for its errors. Sources of the texts:

- containerd: pkg/cri (``no runtime for "H" is configured``; 1.5 and cri-dockerd: ``RuntimeHandler "H" not supported``),
  core/runtime/v2/shim_manager.go (a shim that is missing), images without the platform of the node, images with layers
  that are not file systems (deislabs/containerd-wasm-shims#191, containerd#8243: ``no processor for media-type``) or
  are not unpacked (rancher-desktop#10524); core/images/image.go (``unexpected media type T for D: not found``: the
  registry, or a proxy, has answered with another document); core/unpack/unpacker.go (``number of layers and diffIDs
  don't match``: a layer has a type that containerd does not unpack; 1.7: ``unpacker does not support platform``);
  core/metadata/content.go (``content digest D: not found``: a blob that the node should have, not the registry).
- The dynamic loader of Linux: a shim that is linked to a later version of a library (``version `GLIBC_2.38' not
  found``), or to one that the node does not have.
- CRI-O: internal/oci (``failed to find runtime handler H from runtime list``).
- kubelet: pkg/kubelet/runtimeclass (a RuntimeClass that was deleted); admission plugin RuntimeClass (at creation);
  pkg/kubelet (a key that a ConfigMap or a Secret lacks).
- runwasi 1.0 (crates/containerd-shim-wasm, sys/unix/container/executor.rs, sandbox/context.rs, sandbox/shim/local.rs:
  its task service has no Exec, ``failed to exec in container: …: Exec is not supported``) with youki's
  ``executor can't handle spec`` for an image that is neither Wasm nor an executable (containerd/runwasi#637).
- runc 1.2 (``exec FILE: exec format error`` in the log of the container, status 1; ``exec: "FILE": permission denied``
  for a file that is not executable, as images of Wasm have, and for the entrypoint ``/`` of SpinApps).
- crun 1 (``exec container process `FILE`: Exec format error`` in the log, as text or as JSON: kwasm-operator#27).
- Wasmtime 36 (runtime/linker.rs, runtime/component/linker.rs, engine/serialization.rs) with wasmparser (``magic
  header``), and the linkers of WasmEdge and Wasmer.
- containerd-shim-spin 0.24 (src/trigger.rs, src/source.rs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trellis.read_model.wasm_pods.reasons import Reason

SANDBOX: Final = "FailedCreatePodSandBox"
"""Reason of the Event of the kubelet for a pod without a sandbox."""
CREATE: Final = "FailedCreate"
"""Reason of the Events of controllers whose pods are refused."""
_MOST: Final = 8192
_PREFIX: Final = re.compile(r"(?:Failed to create pod sandbox: |Failed to pull image \"[^\"]*\": |Error: )+")
_RPC: Final = re.compile(r"(?:rpc error: code = \w+ desc = )+")
_CREATING: Final = (
    (re.compile(r'runtimeclass\S{0,40} "(?P<name>[^"]+)" not found', re.IGNORECASE), Reason.RUNTIME_CLASS_MISSING),
    (re.compile(r'no runtime for "(?P<name>[^"]+)" is configured'), Reason.HANDLER_NOT_CONFIGURED),
    (re.compile(r'RuntimeHandler "(?P<name>[^"]+)" not supported'), Reason.HANDLER_NOT_CONFIGURED),
    (re.compile(r"failed to find runtime handler (?P<name>\S+) from runtime list"), Reason.HANDLER_NOT_CONFIGURED),
    (re.compile(r"binary not installed|invalid custom binary path"), Reason.SHIM_NOT_EXECUTABLE),
    (
        re.compile(
            r"failed to start shim.{0,300}?"
            r"(?:exec format error|executable file not found|no such file or directory|permission denied"
            r"|version `[^']+' not found|error while loading shared libraries)"
        ),
        Reason.SHIM_NOT_EXECUTABLE,
    ),
)
"""The error of a task is not one of its shim: runc reports files that are missing, too."""
_PULLING: Final = (
    (
        re.compile(r"no match(?:ing manifest)? for (?:platform|\S+/\S+)|unpacker does not support platform"),
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
    ),
    (
        re.compile(
            r"mismatched image rootfs and manifest layers|parent snapshot \S+ does not exist|unsupported media"
            r"|no processor for media-type|unexpected media type application/vnd[.]|invalid tar header"
            r"|number of layers and diffIDs don't match"
        ),
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    (re.compile(r"unexpected media type|content digest \S+: not found"), Reason.PULL_FAILED),
    (
        re.compile(
            r"unauthorized|(?<!permission )denied|authentication required|no basic auth credentials|forbidden",
            re.IGNORECASE,
        ),
        Reason.REGISTRY_DENIED,
    ),
    (
        re.compile(
            r"not found|manifest.?unknown|name.?unknown|not present with pull policy|invalid reference format",
            re.IGNORECASE,
        ),
        Reason.IMAGE_NOT_FOUND,
    ),
)
"""In this order: a missing platform, a document of another type, and a repository that may not be seen, are reported as
not found, too."""
_RUNNING: Final = (
    (
        re.compile(r"Module was compiled with incompatible (?:Wasmtime )?version '(?P<name>[^']*)'"),
        Reason.PRECOMPILED_BY_ANOTHER_VERSION,
    ),
    (
        re.compile(r"Module was compiled (?:for|with|without) |compilation settings of module incompatible"),
        Reason.PRECOMPILED_BY_ANOTHER_VERSION,
    ),
    (re.compile(r"unknown import: `(?P<name>[^`]+)` has not been defined"), Reason.INTERFACE_MISSING),
    (re.compile(r"incompatible import type for `(?P<name>[^`]+)`"), Reason.INTERFACE_MISSING),
    (re.compile(r'Error while importing (?P<name>"[^"]+"\."[^"]+"): unknown import'), Reason.INTERFACE_MISSING),
    (re.compile(r"instantiation failed: unknown import"), Reason.INTERFACE_MISSING),
    (
        re.compile(r"imports \w+ `(?P<name>[^`]+)`, but a matching implementation was not found"),
        Reason.INTERFACE_MISSING,
    ),
    (re.compile(r'Found unsupported trigger: "?(?P<name>[\w./-]+)'), Reason.TRIGGER_NOT_SUPPORTED),
    (re.compile(r"Couldn't find trigger executor"), Reason.TRIGGER_NOT_SUPPORTED),
    (
        re.compile(
            r"can't handle spec|neither a WebAssembly module nor a component|only a single module is supported"
            r"|expected single layer in OCI package|locked app from \S*/spin\.json|read from \S*/spin\.json"
            r"|incompatible object file format|mismatched image rootfs|parent snapshot \S+ does not exist"
            r"|magic header not detected|failed to parse WebAssembly module"
        ),
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    (
        re.compile(r"\Aexec \S+: exec format error\Z|exec container process `[^`]+`: Exec format error"),
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
    ),
)
_STARTING: Final = (
    *_RUNNING,
    (
        re.compile(r'[Ee]xec format error|exec: "(?:/|[^"]+[.]wasm)": (?:permission denied|is a directory)'),
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
    ),
    (
        re.compile(
            r"no such file or directory|executable file not found|module not found|no entrypoint provided"
            r"|no command specified"
        ),
        Reason.ENTRYPOINT_NOT_FOUND,
    ),
)
"""A program that runs reports such errors about other files, too."""
_CONFIG: Final = ((re.compile(r"(?:configmap|secret) \"[^\"]+\" not found|couldn't find key"), Reason.CONFIG_MISSING),)
_NO_EXEC: Final = re.compile(
    r"failed to exec in container.{0,400}?(?:not supported|not implemented|unimplemented)", re.IGNORECASE
)
_TAINT: Final = "untolerated taint"
_SELECTOR: Final = "node affinity/selector"

Patterns = tuple[tuple[re.Pattern[str], Reason], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure. ``name``: the handler, RuntimeClass, interface, trigger or version in it, "" if it has none."""

    reason: Reason
    name: str = ""


def of_creation(words: str) -> Failure | None:
    """Return the failure in the error of a controller, or in that of a sandbox."""
    return _first(words, _CREATING)


def of_pull(words: str) -> Failure | None:
    """Return the failure in the error of an image that is not pulled."""
    return _first(words, _PULLING)


def of_start(words: str) -> Failure | None:
    """Return the failure in the error of a container that is not created or started."""
    return _first(words, _STARTING)


def of_config(words: str) -> Failure | None:
    """Return the failure in the error of a container whose configuration the kubelet refuses."""
    return _first(words, _CONFIG)


def of_end(lines: Iterable[str]) -> Failure | None:
    """Return the failure in the last words of a container, the newest that is known."""
    found = (_first(line, _RUNNING) for line in reversed([*lines]))
    return next((item for item in found if item is not None), None)


def refuses_exec(words: str) -> bool:
    """Return whether a probe failed because the shim executes no commands in its containers."""
    return _NO_EXEC.search(" ".join(words[:_MOST].split())) is not None


def of_scheduling(words: str) -> Failure | None:
    """Return the failure in the message of the scheduler, if it names labels only, or taints only.

    The scheduler checks taints before labels, so the message of a cluster with both does not show which nodes are
    meant (Kubernetes, pkg/scheduler/apis/config/v1/default_plugins.go).
    """
    taint, selector = _TAINT in words, _SELECTOR in words
    if taint is selector:
        return None
    return Failure(Reason.TAINT_NOT_TOLERATED if taint else Reason.NO_NODE_WITH_LABEL)


def bare(words: str) -> str:
    """Return an error without the prefixes that every such error has, in one line."""
    return _RPC.sub("", _PREFIX.sub("", " ".join(words.split())))


def _first(words: str, patterns: Patterns) -> Failure | None:
    # A message inside another one has its quotes escaped.
    text = " ".join(words[:_MOST].split()).replace('\\"', '"')
    for pattern, reason in patterns:
        if (found := pattern.search(text)) is not None:
            return Failure(reason, (found.groupdict().get("name") or ""))
    return None

"""Errors of the kubelet, containerd, shims and engines: the kind of failure and the name in each text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from trellis.read_model.wasm_pods.failures import (
    Failure,
    bare,
    of_config,
    of_creation,
    of_end,
    of_pull,
    of_start,
    refuses_exec,
)
from trellis.read_model.wasm_pods.reasons import Reason

SANDBOX = "Failed to create pod sandbox: rpc error: code = Unknown desc = "
PULL = (
    'Failed to pull image "r.test/a:1": rpc error: code = Unknown desc = failed to pull and unpack image "r.test/a:1": '
)
TASK = "failed to create containerd task: failed to create shim task: "

CREATED = {
    "containerd, no handler": (
        'failed to get sandbox runtime: no runtime for "spin" is configured',
        Failure(Reason.HANDLER_NOT_CONFIGURED, "spin"),
    ),
    "cri-dockerd, no handler": ('RuntimeHandler "spin" not supported', Failure(Reason.HANDLER_NOT_CONFIGURED, "spin")),
    "CRI-O, no handler": (
        "failed to find runtime handler spin from runtime list map[runc:0xc00041c000]",
        Failure(Reason.HANDLER_NOT_CONFIGURED, "spin"),
    ),
    "a shim that is missing, by its name": (
        (
            'failed to start sandbox "ab": failed to create containerd task: failed to start '
            "shim: failed to resolve runtime "
            'path: runtime "io.containerd.spin.v2" binary not installed "containerd-shim-spin-v2": file does not exist'
        ),
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a shim that is missing, by its path": (
        (
            "failed to start shim: failed to resolve runtime path: invalid custom binary "
            "path: stat /opt/shim: no such file "
            "or directory"
        ),
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a shim for another machine": (
        "failed to start shim: start failed: : fork/exec /opt/shim: exec format error",
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a shim that is not executable": (
        "failed to start shim: start failed: : fork/exec /opt/shim: permission denied",
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a shim that needs a later C library": (
        (
            "failed to start shim: start failed: /opt/shim: /lib64/libc.so.6: version `GLIBC_2.38' not found (required "
            "by /opt/shim): exit status 1"
        ),
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a shim that needs a library": (
        (
            "failed to start shim: start failed: /opt/shim: error while loading shared libraries: libwasmedge.so.0: "
            "cannot open shared object file: No such file or directory: exit status 127"
        ),
        Failure(Reason.SHIM_NOT_EXECUTABLE),
    ),
    "a network plugin that needs a later C library": (
        (
            'failed to setup network for sandbox "ab": plugin type="own" failed (add): /opt/cni/own: /lib64/libc.so.6: '
            "version `GLIBC_2.34' not found"
        ),
        None,
    ),
    "a file that runc does not find": (
        f"{TASK}OCI runtime create failed: runc create failed: open /proc/x: no such file or directory: unknown",
        None,
    ),
    "a network": (
        (
            'failed to setup network for sandbox "ab": plugin type="flannel" failed (add): '
            "open /run/flannel/subnet.env: no "
            "such file or directory"
        ),
        None,
    ),
}


@pytest.mark.parametrize(("words", "found"), CREATED.values(), ids=CREATED)
def test_the_error_of_a_sandbox_has_its_failure(words: str, found: Failure | None) -> None:
    assert of_creation(f"{SANDBOX}{words}") == found


PULLED = {
    "denied": (
        (
            "pull access denied, repository does not exist or may require authorization: server message: "
            "insufficient_scope: authorization failed"
        ),
        Reason.REGISTRY_DENIED,
    ),
    "401": (
        "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        Reason.REGISTRY_DENIED,
    ),
    "403": ("unexpected status from HEAD request to https://r.test/v2/a: 403 Forbidden", Reason.REGISTRY_DENIED),
    "a port of this number": ('Head "https://r.test:403/v2/a": dial tcp 10.0.0.1:401: i/o timeout', None),
    "the disk of the node": ("failed to extract layer sha256:ab: mkdir /var/lib/x: permission denied", None),
    "layers of another type": (
        (
            "failed to unpack image on snapshotter overlayfs: failed to extract layer sha256:ab: failed to get stream "
            "processor for application/vnd.wasm.content.layer.v1+wasm: no processor for media-type: unknown"
        ),
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    "a layer that is no archive": (
        "failed to extract layer sha256:ab: archive/tar: invalid tar header: unknown",
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    "a layer of a type that is not unpacked": (
        "failed to unpack image on snapshotter overlayfs: number of layers and diffIDs don't match: 2 != 0",
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    "a platform that is not unpacked": (
        "unpacker does not support platform wasip1/wasm for image sha256:ab",
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
    ),
    "a blob that the node has lost": ("content digest sha256:ab: not found", Reason.PULL_FAILED),
    "a manifest of another type": (
        "unexpected media type application/vnd.wasm.config.v0+json for sha256:ab: not found",
        Reason.IMAGE_NOT_ACCEPTED,
    ),
    "a page of a proxy in place of the image": (
        "failed to unpack image on snapshotter overlayfs: unexpected media type text/html for sha256:ab: not found",
        Reason.PULL_FAILED,
    ),
    "a full disk": ("write /var/lib/containerd/x: no space left on device", None),
    "a name": (
        'couldn\'t parse image name "A": invalid reference format: repository name must be lowercase',
        Reason.IMAGE_NOT_FOUND,
    ),
}


@pytest.mark.parametrize(("words", "reason"), PULLED.values(), ids=PULLED)
def test_the_error_of_a_pull_has_its_failure(words: str, reason: Reason | None) -> None:
    found = of_pull(f"{PULL}{words}")
    assert (found.reason if found else None) == reason


ENDED = {
    "another version": (
        "Module was compiled with incompatible Wasmtime version '18.0.3'",
        Failure(Reason.PRECOMPILED_BY_ANOTHER_VERSION, "18.0.3"),
    ),
    "another machine": (
        "Module was compiled for architecture 'aarch64'",
        Failure(Reason.PRECOMPILED_BY_ANOTHER_VERSION),
    ),
    "another setting": (
        "Module was compiled with a static memory guard size of '65536' but '4294967296' is expected for the host",
        Failure(Reason.PRECOMPILED_BY_ANOTHER_VERSION),
    ),
    "an import of another type": (
        "incompatible import type for `env::log`",
        Failure(Reason.INTERFACE_MISSING, "env::log"),
    ),
    "an import, of Wasmer": (
        'Error while importing "env"."log": unknown import. Expected Function(FunctionType)',
        Failure(Reason.INTERFACE_MISSING, '"env"."log"'),
    ),
    "an import, of WasmEdge": (
        "[2026-11-27] [error] instantiation failed: unknown import, Code: 0x302",
        Failure(Reason.INTERFACE_MISSING),
    ),
    "a trigger, with its quotes escaped": (
        (
            'Others("Only Http, Redis, MQTT, SQS, and Command triggers are currently '
            "supported. Found unsupported trigger: "
            '\\"cron\\"")'
        ),
        Failure(Reason.TRIGGER_NOT_SUPPORTED, "cron"),
    ),
    "a trigger of the program itself": ("ERROR unsupported trigger event: unknown trigger insert_user", None),
    "a program of the default runtime, by crun": (
        '{"msg":"exec container process `/app.wasm`: Exec format error","level":"error"}',
        Failure(Reason.IMAGE_FOR_ANOTHER_PLATFORM),
    ),
    "no Wasm": ("magic header not detected: bad magic number (at offset 0x0)", Failure(Reason.IMAGE_NOT_ACCEPTED)),
}


@pytest.mark.parametrize(("line", "found"), ENDED.values(), ids=ENDED)
def test_the_last_words_of_a_container_have_its_failure(line: str, found: Failure | None) -> None:
    assert of_end(["one", line, "bye"]) == found


def test_a_shim_that_executes_no_commands_is_distinguished_from_a_command_that_fails() -> None:
    prefix = 'failed to exec in container: failed to create exec "ab": '
    assert refuses_exec(f"Liveness probe errored: {prefix}/containerd.task.v2.Task/Exec is not supported: not found")
    assert refuses_exec(f"Liveness probe errored: {prefix}exec is not supported: not implemented")
    assert not refuses_exec(f"Liveness probe errored: {prefix}task ab not found: not found")
    assert not refuses_exec("Readiness probe failed: this method is not supported")
    assert not refuses_exec("failed to exec in container " * 400)


def test_an_image_without_a_command_has_no_entrypoint() -> None:
    found = of_start('failed to generate container "ab" spec: failed to generate spec: no command specified')
    assert found == Failure(Reason.ENTRYPOINT_NOT_FOUND)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (f'{TASK}OCI runtime create failed: exec: "/": permission denied', Reason.IMAGE_FOR_ANOTHER_PLATFORM),
        (f'{TASK}OCI runtime create failed: exec: "/app.wasm": permission denied', Reason.IMAGE_FOR_ANOTHER_PLATFORM),
        (f'{TASK}OCI runtime create failed: exec: "/entrypoint.sh": permission denied', None),
    ],
)
def test_a_wasm_file_that_the_default_runtime_may_not_execute_is_a_failure(words: str, reason: Reason | None) -> None:
    found = of_start(words)
    assert (found.reason if found else None) == reason


@pytest.mark.parametrize(
    "words", ['configmap "a" not found', 'secret "a" not found', "couldn't find key b in Secret shop/a"]
)
def test_a_missing_object_of_the_configuration_is_a_failure(words: str) -> None:
    assert of_config(words) == Failure(Reason.CONFIG_MISSING)


@pytest.mark.parametrize("of", [of_creation, of_pull, of_start, of_config, lambda words: of_end([words])])
@pytest.mark.parametrize(
    "words",
    [
        "",
        "\0",
        "x" * 10**6,
        "`" * 9000,
        "shim" * 2500,
        "failed to start shim " * 500,
        '"' * 9000,
        "no match for " * 900,
    ],
)
def test_any_other_text_is_no_failure_and_is_read_at_once(of: Callable[[str], Failure | None], words: str) -> None:
    before = time.process_time()
    assert of(words) is None
    assert time.process_time() - before < 1


def test_the_words_of_containerd_remain() -> None:
    assert bare(f"{SANDBOX}plugin  type=flannel\nfailed") == "plugin type=flannel failed"

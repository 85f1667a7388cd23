"""The demo on a real node: the runtime in the installer's image is installed, and a pod prints a line with it.

In: a checkout, a local cluster with one real node. Out: images on the node, and the commands that were run. Called by
the demo with ``--real-node``. Needs root and Linux. Invariant: only the node in its namespaces is changed, not this
machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis import names
from trellis_cli.common.errors import CommandError
from trellis_dev.demo.commands import Commands, Shown, write_manifest
from trellis_dev.demo.display import Display
from trellis_dev.demo.shims import HELLO, make_hello_pod, make_real_shim
from trellis_dev.localcluster import own_images, requirements, wasmshim
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image
from trellis_dev.localcluster.realnode_faults import load_image
from trellis_dev.localcluster.state import NODE_NAMES

NODE: Final = NODE_NAMES[0]
RUNTIME: Final = f"{wasmshim.IN_IMAGE}/{wasmshim.SHIM}"
"""Path of the runtime in the installer's image, as its Dockerfile has it."""
NAME: Final = wasmshim.SHIM.removeprefix("containerd-shim-").removesuffix("-v1")
"""Name of the Shim, of its handler and of its RuntimeClass."""
OUTPUT: Final = "hello from wasm"
_WAIT: Final = "5m"


@dataclass(frozen=True, slots=True)
class Images:
    """Archives for the real node, and the checksum of the runtime in the installer's image."""

    archives: tuple[Path, ...]
    sha256: str


def prepare(checkout: Path, how: How) -> Images:
    """Return the images, built once for each state of their sources.

    Raises:
        ToolError: this machine cannot run real nodes, this is not a checkout, or a build fails.
    """
    requirements.require()
    own_images.require_checkout(checkout)
    installer = own_images.own_image(own_images.INSTALLER, checkout, how)
    archives = (installer, hello_wasm_image(wasmshim.hello_module(how), how))
    return Images(archives, hashlib.sha256(wasmshim.shim(how).read_bytes()).hexdigest())


def load(cluster: str, images: Images) -> None:
    """Load the images on the real node. Raise LocalClusterError if its containerd rejects one."""
    for archive in images.archives:
        load_image(cluster, NODE, archive)


async def show(commands: Commands, images: Images, folder: Path, display: Display) -> tuple[Shown, ...]:
    """Install the runtime on the node, and run a pod with it.

    Raises:
        CommandError: a command failed, or the pod printed something else.
    """
    run = commands.run
    shim = write_manifest(folder, NAME, make_real_shim(NAME, RUNTIME, images.sha256))
    pod = write_manifest(folder, HELLO, make_hello_pod(NAME))
    display.step(f"installing the runtime {NAME} on {NODE}, a real node")
    shown = [
        await run("kubectl", "apply", "-f", str(shim)),
        await run("kubectl", "annotate", "node", NODE, f"{names.ANNOTATION_OPT_IN}=true"),
        await run("trellis", "rollout", "status", NAME, "--watch", "--timeout", _WAIT),
        await run("kubectl", "apply", "-f", str(pod)),
        await run("kubectl", "wait", f"pod/{HELLO}", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={_WAIT}"),
        await run("kubectl", "logs", HELLO),
    ]
    if shown[-1].output != OUTPUT:
        raise CommandError(f"pod {HELLO} printed {shown[-1].output!r} instead of {OUTPUT!r}")
    display.step(f"pod {HELLO} on {NODE} printed: {OUTPUT}")
    return tuple(shown)

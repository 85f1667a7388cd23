"""The program of installer Jobs: installs Wasm shims on a node, verifies and uninstalls them.

Consumes: a specification (``trellis.installer_api.spec``) and the disk of the node at ``/mnt/node-root``. Emits: spans,
and a result as its termination message. Owns: the shims of the node, their entries in the configuration of the
container runtime, its own state.
"""

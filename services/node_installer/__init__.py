"""The program in the installer Job's container: puts Wasm shims onto one node, proves them, takes them away again.

Consumes: a specification (``trellis.installer_api.spec``) and the node's disk at ``/mnt/node-root``. Emits: spans, and a
result as its termination message. Owns: the node's shims, their entries in the container runtime's configuration, its
own state.
"""

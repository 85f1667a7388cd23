"""Watches Nodes and installer Jobs; says what happens to nodes; marks the nodes that run Wasm.

Consumes: Nodes, installer Jobs, ``provision.succeeded``, ``provision.failed``.
Emits: ``node.opted_in``, ``node.opted_out``, ``node.replaced``, ``node.gone``, ``node.ready``.
Owns (is the only writer of): labels, taints and annotations of Nodes that concern Wasm.
"""

"""Watches Nodes and installer Jobs, publishes their changes, and labels the nodes that run Wasm.

Consumes: Nodes, installer Jobs, the slots of rollouts in the ledger, ``provision.succeeded``, ``provision.failed``.
Publishes: ``node.opted_in``, ``node.opted_out``, ``node.replaced``, ``node.gone``, ``node.ready``. Owns (is the only
writer of): labels, taints and annotations of Nodes for Wasm.
"""

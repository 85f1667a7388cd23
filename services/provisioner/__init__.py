"""Runs installer Jobs on opted-in nodes, within the limits of the rollout.

Consumes: ``node.*`` events, Nodes, its own Jobs, Wasm pods. Publishes: ``provision.started``, ``.succeeded``,
``.failed``, ``.removed``, ``rollout.halted``, ``.resumed``, ``wasm_workload.running``, ``.failed``, ``.recovered``.
Owns (is the only writer of): installer Jobs and the rollout ledger.
"""

"""Runs installer Jobs on the nodes that opted in, never on more at a time than the rollout allows.

Consumes: ``node.*`` events, Nodes, its own Jobs.
Emits: ``provision.started``, ``.succeeded``, ``.failed``, ``.removed``, ``rollout.halted``, ``.resumed``.
Owns (is the only writer of): installer Jobs and the rollout ledger.
"""

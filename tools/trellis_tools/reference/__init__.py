"""The reference pages of docs/reference, written from what the code and the definitions say.

In: kinds, facts, settings, commands and deploy/rbac. Out: Markdown. Called by ``make generate`` and ``make verify``.
Invariant: the same input gives the same text, on every machine.
"""

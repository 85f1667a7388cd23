"""The reference pages of docs/reference, generated from the code and the CRDs.

In: kinds, events, settings, commands and deploy/rbac. Out: Markdown. Called by ``make generate`` and ``make verify``.
Invariant: the same input gives the same text, on every machine.
"""

"""State of a cluster for people: health, rows, rollouts and explanations, as values and as JSON.

Shared by the command line and the console, which only render it. In: objects as the API server returns them, dead
letters, spans. Out: frozen values, each with its ``document``. Invariant: nothing here writes, and most of it is pure.
"""

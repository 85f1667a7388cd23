"""What people are shown of a cluster, whoever shows it: rows, standings, pages that say why, as values and as JSON.

Shared by the command line and the console, which only draw it. In: objects as the API server returns them, letters,
spans. Out: frozen values, each with its ``document``. Invariant: nothing here writes, and most of it is pure.
"""

"""CloudEvents on the bus: their data models, types and subjects.

Pure: only pydantic and the standard library. ``subjects`` has the table of all events; each noun has a module with its
models.
"""

"""Facts on the bus: their models, types and subjects.

Pure: only pydantic and the standard library. ``subjects`` is the one table; a module a noun holds the models.
"""

"""Custom resources: the models, and the definitions that are made of them.

``api`` has what every kind is made of, one module a kind holds its fields, ``kinds`` is the table of them, ``schema``
turns a model into a structural schema, ``trellis_tools.crds`` writes the definitions into the Helm chart. Pure: imports
pydantic and the standard library only.
"""

"""Custom resources: the models, and the definitions that are made of them.

``api`` has what every kind is made of, one module a kind holds its fields, ``kinds`` is the table of them, ``schema``
turns a model into a structural schema, ``generate`` writes the definitions to ``deploy/crds``. Pure: imports pydantic
and the standard library only.
"""

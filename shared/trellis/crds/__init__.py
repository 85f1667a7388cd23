"""Custom resources: the models, and the CRDs that are generated from them.

``api`` contains the common parts, one module per kind contains its fields, ``kinds`` is the table of CRDs, ``schema``
translates a model to a structural schema, and ``trellis_tools.crds`` writes the CRDs into the Helm chart. Pure: imports
pydantic and the standard library only.
"""

"""The rules by which Applications in Kubernetes and in wadm are kept equal, as a pure function.

Consumes: what both sides have. Emits: nothing. Owns nothing: it says what is to be done, and nothing here watches,
asks or writes.
"""

"""Gives Kubernetes Secrets to Wasm components, over wasmCloud's secrets protocol, as the account the policy names.

Consumes: requests on ``wasmcloud.secrets.v1alpha1.<backend>.{get,server_xkey}`` of every lattice. Emits: nothing but
answers and audit events. Owns (is the only writer of): nothing.
"""

"""Provides Kubernetes Secrets to Wasm components over the wasmCloud secrets protocol, by impersonation.

Consumes: requests on ``wasmcloud.secrets.v1alpha1.<backend>.{get,server_xkey}`` of every lattice. Publishes: answers
and audit events only. Owns (is the only writer of): nothing.
"""

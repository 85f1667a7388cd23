"""Keeps Applications equal in Kubernetes and in wadm: what is applied with kubectl runs, what wash puts is seen.

Consumes: Applications, WasmCloudHostConfigs, wadm's storage and what wadm says of applications. Emits:
``application.synced``, ``application.overridden``, ``application.rejected``, ``application.deleted``.
Owns (is the only writer of): status and finalizer of Applications, the spec of those that wash changed; in wadm the
models of those that were applied in Kubernetes.
"""

"""Synchronizes Applications between Kubernetes and wadm: kubectl and wash change the same applications.

Consumes: Applications, WasmCloudHostConfigs, the storage and events of wadm. Publishes: ``application.synced``,
``application.overridden``, ``application.rejected``, ``application.deleted``. Owns (is the only writer of): status and
finalizer of Applications, the spec of those changed by wash; in wadm the models of those applied in Kubernetes.
"""

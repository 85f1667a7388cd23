"""Mirrors applications as Services: what listens in a lattice is reached in Kubernetes, and no endpoint is stale.

Consumes: wadm's events and answers, heartbeats of hosts, WasmCloudHostConfigs and their pods, its own Services and
EndpointSlices. Emits: ``service.reflected``, ``service.removed``.
Owns (is the only writer of): Services, EndpointSlices and HTTPRoutes that mirror applications.
"""

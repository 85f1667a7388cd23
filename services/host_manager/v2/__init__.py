"""Publishes the lifecycle of wasmCloud v2, beside the runtime-operator and read-only.

In: the objects of ``runtime.wasmcloud.dev``. Out: events, metrics. Called by ``host_manager.app``. Invariants: nothing
is written to Kubernetes; a cluster without wasmCloud v2 causes one request for its API group a minute; problems of
wasmCloud v2 never delay host groups.
"""

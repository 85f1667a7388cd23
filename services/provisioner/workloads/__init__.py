"""Sees Wasm pods and reports their owners: events on the bus, Warning Events, metrics (ADR 123).

In: pods of the RuntimeClasses whose handler a Shim provides, and Events about refused pods. Out: events, metrics,
``WorkloadPods`` for other parts of provisioner. Called by ``provisioner.app``. Invariants: problems of workloads never
delay nodes; a pod of another RuntimeClass is not kept; nothing is read of a pod that works.
"""

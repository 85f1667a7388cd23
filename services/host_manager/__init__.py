"""Runs host groups: creates pods with a NATS leaf node, and their other children, from a WasmCloudHostConfig.

Consumes: WasmCloudHostConfigs, their children and pods, the Secrets and ConfigMaps they name; ``secret.changed``.
Publishes: ``hosts.*``, ``host_pod.*``; from wasmCloud v2, which it only reads, ``workload_deployment.*``,
``workload.*``, ``wasm_host.*``, ``heartbeats.*``, ``artifact.published``. Owns (is the only writer of): children and
status of WasmCloudHostConfig.
"""

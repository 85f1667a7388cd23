"""Runs host groups: WasmCloudHostConfig becomes pods with a NATS leaf each, and what belongs to them.

Consumes: WasmCloudHostConfigs, their children and pods, the Secrets and ConfigMaps they name; ``secret.changed``.
Emits: ``hosts.*``, ``host_pod.ready``, ``host_pod.gone``.
Owns (is the only writer of): children and status of WasmCloudHostConfig.
"""

"""wasmCloud v2 for ``trellis explain`` and ``trellis status``: reads of Kubernetes, NATS and registries."""

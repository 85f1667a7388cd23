"""Runs Kubernetes controllers that are WebAssembly modules, each as its own account; suspends idle ones to disk.

Consumes: no events; it watches WasmControllers and the objects that they request. Publishes: controller.woken,
controller.suspended, controller.trapped. Owns (is the only writer of): the status of WasmController.
"""

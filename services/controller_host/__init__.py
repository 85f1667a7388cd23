"""Runs Kubernetes controllers that are WebAssembly modules, each as its own account, and puts those that idle to disk.

Consumes: nothing of the bus; it watches WasmController objects and what they ask for. Emits: controller.woken,
controller.suspended, controller.trapped. Owns (is the only writer of): the status of WasmController.
"""

"""Pods with a Wasm RuntimeClass, read-only and pure: views of Kubernetes objects, health and causes.

Nothing here reads a clock, a file or the network (ADR 120). ``read_model.reading.explained_pods`` reads the objects,
``trellis explain`` shows the pages.
"""

"""The guests themselves: modules, instances, their limits, and their state on disk.

Comes in: the bytes of a module, requests as JSON, a :class:`Host` that answers what a guest asks. Goes out: answers,
faults by name, snapshots. Called from the threads of a pool: nothing here knows Kubernetes, the bus or an event loop
(import-linter holds it). One thread at a time calls an instance; modules are shared between threads.
"""

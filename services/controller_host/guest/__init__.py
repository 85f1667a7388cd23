"""Guests: modules, instances, their limits, and their state on disk.

In: the bytes of a module, requests as JSON, a :class:`Host` that answers requests of guests. Out: answers, faults by
kind, snapshots. Called from the threads of a pool. The package does not depend on Kubernetes, the bus or an event loop
(checked by import-linter). One thread at a time calls an instance; modules are shared between threads.
"""

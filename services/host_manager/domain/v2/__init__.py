"""Events about the objects of wasmCloud v2: those to publish, and those that are published.

Pure, except for the state of ``Published``. In: a snapshot, the published events, since when the operator has worked.
Out: events. Called by ``host_manager.v2``. Invariants: a reason is the one of ``trellis explain``; the state is the
result of the published events only, so a leader continues where the former one stopped; silence proves nothing while
the operator does not work.
"""

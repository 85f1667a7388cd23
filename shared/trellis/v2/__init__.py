"""wasmCloud v2 as Trellis sees it: views of its objects and messages, health, causes.

Pure. In: objects of ``runtime.wasmcloud.dev``, heartbeats and replies of hosts, answers of registries. Out: values, and
the pages of ``trellis explain``. Called by the command line and the console. Invariants: nothing here raises for any
input; Trellis writes none of these objects, the runtime-operator of wasmCloud does; a part that was not read is never
concluded to be absent. Source of the contract: runtime-operator and ``wash host`` 2.7.
"""

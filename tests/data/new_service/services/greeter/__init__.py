"""Greets Nodes that run Wasm, in its log. Consumes ``node.ready``; publishes and writes nothing."""

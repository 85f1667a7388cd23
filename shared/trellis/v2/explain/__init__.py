"""Pages of ``trellis explain`` for wasmCloud v2, and the parts of their chains. Pure."""

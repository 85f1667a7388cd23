"""Pages of ``trellis explain`` for Wasm pods and their owners, and the checks of their chains. Pure."""

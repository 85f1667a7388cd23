"""The conversion of applications of wasmCloud v1 to objects of wasmCloud v2."""

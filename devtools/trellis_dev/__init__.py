"""For developers and for trying things out: a control plane on this machine, fakes for tests, a demo."""

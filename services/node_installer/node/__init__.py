"""The node: its disk, processes, container runtime. Everything that reads or changes it."""

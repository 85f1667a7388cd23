"""The node: reads and changes of its disk, processes and container runtime."""

"""An in-memory API server for tests of services, and the disks of simulated nodes."""

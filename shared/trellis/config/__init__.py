"""Settings from the environment and from files, validated, and default timings."""

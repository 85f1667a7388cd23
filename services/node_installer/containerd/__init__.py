"""containerd's configuration as text and by meaning. Pure."""

"""containerd's configuration, as text and parsed. Pure."""

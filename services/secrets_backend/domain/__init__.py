"""The secrets protocol, and which request may read which Secret. Pure."""

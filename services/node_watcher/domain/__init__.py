"""What to write on a Node and which events to publish. Pure."""

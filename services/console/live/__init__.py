"""Streams to pages: from watches of each viewer and from the bus."""

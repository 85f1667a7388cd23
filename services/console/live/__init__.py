"""Streams to pages, from the watches of each viewer and from the bus."""

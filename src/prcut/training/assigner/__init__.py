"""Assigners: networks from rows to clusters, their use on many rows, and how they are saved."""

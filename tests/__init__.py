"""A package, so that processes started by a test find its functions by name."""

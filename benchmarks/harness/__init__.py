"""The paper's tables and the peers, side by side: ``python -m benchmarks.harness``."""

__all__: list[str] = []

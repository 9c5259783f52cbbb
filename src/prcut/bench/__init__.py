"""The paper's tables and the peers, side by side on the same data (``prcut bench``)."""

__all__: list[str] = []

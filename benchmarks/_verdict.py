"""How a benchmark ends."""


def verdict(short: list[str], promise: str) -> int:
    """Say what fell short, or that ``promise`` holds; return the exit status."""
    print("\n" + "\n".join(["short:", *short] if short else [f"holds: {promise}"]))
    return 1 if short else 0

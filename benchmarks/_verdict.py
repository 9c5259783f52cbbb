"""How a benchmark ends, and the tables that it keeps."""

from pathlib import Path


def verdict(short: list[str], promise: str) -> int:
    """Say what fell short, or that ``promise`` holds; return the exit status."""
    print("\n" + "\n".join(["short:", *short] if short else [f"holds: {promise}"]))
    return 1 if short else 0


class Table:
    """Lines of Markdown that are printed as they come and, of a full run, kept for the docs."""

    def __init__(self, *columns: str) -> None:
        self.lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        print("\n".join(self.lines), flush=True)

    def add(self, *cells: str) -> None:
        self.lines.append(f"| {' | '.join(cells)} |")
        print(self.lines[-1], flush=True)

    def say(self, text: str) -> None:
        self.lines += ["", text]
        print(text, flush=True)


def keep(name: str, *tables: Table) -> None:
    """Write tables where the docs look for them."""
    text = "\n\n".join("\n".join(table.lines) for table in tables)
    (Path(__file__).parent / "results" / f"{name}.md").write_text(text + "\n", "utf-8")

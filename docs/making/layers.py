"""The picture of the nine rooms, drawn from the imports that are really there."""

import ast
import functools
import html
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src/prcut"
# the tuple that a test holds every import to
TABLE = ROOT / "tests/test_package.py"

_WIDTH, _TITLE_WIDTH, _ROW, _GAP, _BETWEEN = 860.0, 130.0, 26.0, 6.0, 34.0
_LETTER, _PADDING = 6.4, 10.0


@functools.cache
def rooms() -> tuple[str, ...]:
    """Return the rooms, the lowest first."""
    for node in ast.parse(TABLE.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS":
            found: tuple[str, ...] = ast.literal_eval(node.value)
            return found
    raise LookupError(f"{TABLE} has no ROOMS")


@functools.cache
def modules() -> tuple[str, ...]:
    """Return all modules, such as ``"graph.build"``, without the rooms' ``__init__``."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return tuple(sorted(".".join(path.parts) for path in paths if not path.name.startswith("__")))


def imports(module: str) -> set[str]:
    """Return the rooms and modules of prcut that a module imports, at any depth."""
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    known = {*modules(), *rooms()}
    found = set()
    for name in names:
        parts = name.split(".")[1:] if name.startswith("prcut.") else []
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        found |= {next((prefix for prefix in prefixes if prefix in known), "")}
    return found - {""}


@functools.cache
def picture() -> str:
    """Draw an SVG to stand in a page: bands of modules, and how many imports point down."""
    all_imports = {name: imports(name) for name in modules()}
    counts: Counter[tuple[str, str]] = Counter()
    for name, imported in all_imports.items():
        counts.update((_room(name), _room(other)) for other in imported)
    shapes: list[str] = []
    y = 4.0
    for rank, room in reversed([*enumerate(rooms())]):
        members = {name: others for name, others in all_imports.items() if _room(name) == room}
        y += _band(shapes, y, room, members)
        if rank:
            below = [low for low in reversed(rooms()[:rank]) if counts[room, low]]
            counted = ", ".join(f"{counts[room, low]} of {low}" for low in below)
            _arrow(shapes, y, f"imports {counted}")
            y += _BETWEEN
    label = "Rooms of prcut: every import points down"
    svg = f'<svg viewBox="0 0 {_WIDTH:g} {y + 4:g}" role="img" aria-label="{label}">'
    return f'<div class="layers">{svg}{"".join(shapes)}</svg></div>'


def _room(module: str) -> str:
    return module.partition(".")[0]


def _band(shapes: list[str], top: float, room: str, members: dict[str, set[str]]) -> float:
    """Add a room with its modules; return its height."""
    x, y, boxes = _TITLE_WIDTH, top + 8, []
    for name, imported in members.items():
        shown = html.escape(name.removeprefix(f"{room}.").replace(".", "/"))
        width = _LETTER * len(shown) + 2 * _PADDING
        if x + width > _WIDTH - 8:
            x, y = _TITLE_WIDTH, y + _ROW + _GAP
        others = html.escape(", ".join(sorted(imported)) or "nothing of prcut")
        boxes.append(
            f"<g><title>{html.escape(name)} imports {others}</title>"
            f'<rect class="module" x="{x:g}" y="{y:g}" width="{width:g}" height="{_ROW:g}" rx="4"/>'
            f'<text x="{x + width / 2:g}" y="{y + 17:g}" text-anchor="middle">{shown}</text></g>'
        )
        x += width + _GAP
    height = y + _ROW + 8 - top
    shapes.append(
        f'<rect class="band" x="0" y="{top:g}" width="{_WIDTH:g}" height="{height:g}" rx="6"/>'
        f'<text class="title" x="14" y="{top + height / 2 + 4:g}">{room}</text>'
    )
    shapes.extend(boxes)
    return height


def _arrow(shapes: list[str], top: float, remark: str) -> None:
    x, end = 60.0, top + _BETWEEN - 5
    shapes.append(
        f'<path class="arrow" d="M{x:g} {top + 5:g}V{end:g}m-5 -6l5 6l5 -6"/>'
        f'<text class="remark" x="{_TITLE_WIDTH:g}" y="{top + 21:g}">{html.escape(remark)}</text>'
    )

"""The picture of the layers, from the imports that are really there."""

import ast
import functools
import html
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src/prcut"
# the table that a test holds every import to
TABLE = ROOT / "tests/test_package.py"

_WIDTH, _TITLE_WIDTH, _ROW, _GAP, _BETWEEN = 860.0, 130.0, 26.0, 6.0, 34.0
_LETTER, _PADDING = 6.4, 10.0


def modules() -> list[str]:
    """``"graph"``, and ``"bench.runner"`` for those of the subpackage."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(path.parts) for path in paths if path.name != "__init__")


@functools.cache
def layer_numbers() -> dict[str, int]:
    """Layer of every module (of the subpackage: ``"bench"``)."""
    for node in ast.parse(TABLE.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            numbers: dict[str, int] = ast.literal_eval(node.value)
            return numbers
    raise LookupError(f"{TABLE} has no LAYERS")


def layer_titles() -> dict[int, str]:
    """``{0: "numerics", …}``, from the comments of the table."""
    found = re.findall(r"^    # (\d) (\w+)", TABLE.read_text("utf-8"), re.MULTILINE)
    return {int(number): title for number, title in found}


def imports(module: str) -> set[str]:
    """Modules of prcut that a module imports, at any depth."""
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    known = layer_numbers()
    found = {name.split(".")[1] for name in names if name.startswith("prcut.")}
    return {name for name in found if name in known}


@functools.cache
def picture() -> str:
    """An SVG to stand in a page: bands of modules, and how many imports point down."""
    numbers, titles = layer_numbers(), layer_titles()
    all_imports = {name: imports(name) for name in modules()}
    counts: Counter[tuple[int, int]] = Counter()
    for name, imported in all_imports.items():
        own = numbers[name.split(".", maxsplit=1)[0]]
        counts.update((own, numbers[other]) for other in imported if other in numbers)
    shapes: list[str] = []
    y = 4.0
    for number in sorted(titles, reverse=True):
        members = [name for name, layer in numbers.items() if layer == number and "__" not in name]
        height = _band(shapes, y, number, titles[number], members, all_imports)
        y += height
        if number:
            down = {low: count for (high, low), count in counts.items() if high == number > low}
            parts = [f"{down[low]} of {titles[low]}" for low in sorted(down, reverse=True)]
            _arrow(shapes, y, f"imports {', '.join(parts)}")
            y += _BETWEEN
    label = "Layers of prcut: every import points down"
    svg = f'<svg viewBox="0 0 {_WIDTH:g} {y + 4:g}" role="img" aria-label="{label}">'
    return f'<div class="layers">{svg}{"".join(shapes)}</svg></div>'


def _band(
    shapes: list[str],
    top: float,
    number: int,
    title: str,
    members: list[str],
    all_imports: dict[str, set[str]],
) -> float:
    x, y, boxes = _TITLE_WIDTH, top + 8, []
    for name in members:
        width = _LETTER * len(name) + 2 * _PADDING
        if x + width > _WIDTH - 8:
            x, y = _TITLE_WIDTH, y + _ROW + _GAP
        imported = ", ".join(sorted(all_imports.get(name, set()))) or "nothing of prcut"
        boxes.append(
            f"<g><title>{html.escape(name)} imports {html.escape(imported)}</title>"
            f'<rect class="module" x="{x:g}" y="{y:g}" width="{width:g}" height="{_ROW:g}" rx="4"/>'
            f'<text x="{x + width / 2:g}" y="{y + 17:g}" text-anchor="middle">'
            f"{html.escape(name)}</text></g>"
        )
        x += width + _GAP
    height = y + _ROW + 8 - top
    shapes.append(
        f'<rect class="band" x="0" y="{top:g}" width="{_WIDTH:g}" height="{height:g}" rx="6"/>'
        f'<text class="title" x="14" y="{top + height / 2 + 4:g}">{number} {title}</text>'
    )
    shapes.extend(boxes)
    return height


def _arrow(shapes: list[str], top: float, remark: str) -> None:
    x, end = 60.0, top + _BETWEEN - 5
    shapes.append(
        f'<path class="arrow" d="M{x:g} {top + 5:g}V{end:g}m-5 -6l5 6l5 -6"/>'
        f'<text class="remark" x="{_TITLE_WIDTH:g}" y="{top + 21:g}">{html.escape(remark)}</text>'
    )

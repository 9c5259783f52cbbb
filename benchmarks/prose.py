"""Count patterns that make the README and the site hard to read, and fail above the limits.

    python benchmarks/prose.py                # each count with its limit
    python benchmarks/prose.py --sample 50    # random sentences, to be read aloud

The counts are a help. Whether a sentence is plain, a reader decides.
"""

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

# sentences that match are counted one by one; none is allowed
PATTERNS = {
    'sentences that start with "Of "': r"^Of ",
    'sentences that start with "What " and ask nothing': r"^What (?!.*\?$)",
    'sentences that start with "Those "': r"^Those ",
    'sentences that start with "These " and a verb': r"^These (?:are|were|have|had|do|can|will"
    r"|may|must|should|come|give|go|hold|make|mean|need|run|say|show|stay|take|use|work)\b",
    '", of which"': r", of which\b",
    '"anew"': r"\banew\b",
}
# lines of Markdown on the site: more was not read to its end
MOST_LINES = 2800
# pages in the navigation, without the generated reference, command line and gallery
MOST_PAGES = 15
# semicolons per 100 sentences: one idea a sentence, with a few exceptions
MOST_SEMICOLONS = 6.0
# words per sentence, on average
MOST_WORDS = 22.0
# shorter pieces, such as labels of links, are not sentences
FEWEST_WORDS = 4
# the same sentences are drawn on every machine
SEED = 43


def site_pages() -> list[Path]:
    """Return the committed pages of the navigation, in its order."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = [DOCS / name for name in re.findall(r"[\w/-]+\.md", navigation)]
    return [path for path in named if path.exists()]


def without_code(markdown: str) -> str:
    """Return the text of a page without blocks of code, formulas, comments and pictures."""
    text = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\[?!\[[^\]]*\]\([^)]*\)(?:\]\([^)]*\))?", "", text)
    return re.sub(r"\[([^\]]*)\][(\[][^)\]]*[)\]]", r"\1", text)  # a link's label stays


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of paragraphs and items, without headings and tables."""
    kept = [line for line in text.splitlines() if not line.startswith(("#", "|"))]
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:\*|-|\d\.) )", "\n".join(kept)):
        joined = " ".join(re.sub(r"^\s*(?:\*|-|\d\.) |\*\*", "", paragraph).split())
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z*`$]|prcut )", joined):
            if len(sentence.split()) >= FEWEST_WORDS:
                yield sentence


def docstrings() -> Iterator[str]:
    """Yield the first paragraph of every docstring of the package."""
    for path in sorted((ROOT / "src/prcut").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield (ast.get_docstring(node) or "").partition("\n\n")[0]


def counts(pages: list[Path]) -> Iterator[tuple[str, float, float]]:
    """Yield every count of the README and the site, with its limit."""
    lines = sum(path.read_text("utf-8").count("\n") for path in pages)
    yield "lines of the site", lines, MOST_LINES
    yield "pages in the navigation", len(pages), MOST_PAGES
    texts = [without_code(path.read_text("utf-8")) for path in [ROOT / "README.md", *pages]]
    found = [sentence for text in texts for sentence in sentences(text)]
    for name, pattern in PATTERNS.items():
        matching = [sentence for sentence in found if re.search(pattern, sentence)]
        for sentence in matching:
            print(f"    {sentence}")
        yield name, len(matching), 0
    bare = [re.sub(r"`[^`]*`", "", text) for text in texts]
    clipped = [number for text in bare for number in re.findall(r"(?<![\w.])\.\d+", text)]
    yield "numbers without a leading zero", len(clipped), 0
    semicolons = sum(sentence.count(";") for sentence in found)
    yield "semicolons per 100 sentences", 100 * semicolons / len(found), MOST_SEMICOLONS
    words = sum(len(sentence.split()) for sentence in found)
    yield "words per sentence", words / len(found), MOST_WORDS


def sample(size: int) -> None:
    """Print random sentences of the README, the site and the docstrings."""
    markdown = [path.read_text("utf-8") for path in [ROOT / "README.md", *site_pages()]]
    texts = [*(without_code(page) for page in markdown), *docstrings()]
    found = [sentence for text in texts for sentence in sentences(text)]
    for sentence in random.Random(SEED).sample(found, size):  # noqa: S311
        print(f"* {sentence}")


def main() -> int:
    """Print the counts, or a sample; return 1 if a count is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, help="print so many random sentences instead")
    size = parser.parse_args().sample
    if size is not None:
        sample(size)
        return 0
    failed = False
    for name, count, limit in counts(site_pages()):
        above = count > limit
        print(f"{name}: {count:.4g} (at most {limit:g}){' TOO MANY' if above else ''}")
        failed |= above
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

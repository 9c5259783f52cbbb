import re

from bench_samples import record
from benchmarks.harness.summary import summarise


def line(text: str, title: str) -> list[str]:
    """Cells of the first line of a method."""
    found = re.search(rf"^\| {re.escape(title)} \|(.*)\|$", text, re.MULTILINE)
    assert found, text
    return [cell.strip() for cell in found[1].split("|")]


def test_cells_are_medians_with_their_range() -> None:
    records = [record(seed=seed, acc=acc) for seed, acc in enumerate((0.698, 0.696, 0.697))]
    text = summarise(records)
    assert line(text, "k-means (FAISS)") == [
        "*0.697 (0.696–0.698)*",
        *("*0.600*", "*0.500*", "*4.000*", "*0.400*", "10", "3.0 s"),
    ]
    assert "### mnist (train), raw, 15 neighbours" in text
    assert "60,000 rows, 784 features, 10 classes." in text
    assert "Seeds 0, 1, 2; 3 runs, 0.1 min in all." in text
    assert "Machine: abacus, 2 CPU(s), 1 thread(s), Linux x86_64." in text


def test_where_prcut_is_not_first_the_table_says_so() -> None:
    text = summarise([record("prcut", acc=0.8, nmi=0.89), record("umap_hdbscan", acc=0.7, nmi=0.9)])
    assert "**PRCut is not first in NMI: UMAP + HDBSCAN 0.900 against 0.890.**" in text
    assert "not first in ACC" not in text
    # the best of its rows counts, and being level is being first
    text = summarise([record("prcut"), record("prcut_graph", acc=0.8), record("metis", acc=0.8)])
    assert "not first" not in text
    assert "not first" not in summarise([record("metis")])
    # sorted by accuracy
    assert text.index("| METIS") < text.index("| PRCut |")

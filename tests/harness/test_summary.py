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


def test_the_best_of_spectral_clustering_is_chosen_by_its_cut() -> None:
    cuts = ((0.9, 3.0), (0.5, 2.0), (0.6, 4.0))
    records = [
        record("spectral_clustering", seed, acc=acc, ratio_cut=cut)
        for seed, (acc, cut) in enumerate(cuts)
    ]
    text = summarise(records)
    title = "SpectralClustering (scikit-learn)"
    assert line(text, title)[0] == "*0.600 (0.500–0.900)*"
    best = line(text, f"{title}, best of 3 by RC")
    assert best[0] == "0.500"
    assert best[-1] == "69 s"  # three runs with their graph
    assert "by RC" not in summarise(records[:1])


def test_runs_that_were_not_done_are_shown() -> None:
    nothing = {"acc": None, "nmi": None, "ari": None, "wall_seconds": None, "ratio_cut": None}
    records = [
        record("hdbscan", status="timed out", **nothing),
        record("evoc", status="failed", message="no luck", **nothing),
        record("prcut"),
        record("prcut", 1, status="failed", message="lost", **nothing),
    ]
    text = summarise(records)
    assert line(text, "HDBSCAN (scikit-learn)¹")[-1] == "> 600 s"
    assert line(text, "HDBSCAN (scikit-learn)¹")[0] == "—"
    assert line(text, "EVoC¹")[-1] == "failed"
    assert line(text, "PRCut")[-1] == "3.0 s, failed (1 of 2 seeds)"
    assert "Failed: mnist, evoc, seed 0: no luck" in text
    assert "¹ Not told the number of clusters." in text
    assert "No run was finished." in summarise([record(status="failed", n_samples=None, **nothing)])

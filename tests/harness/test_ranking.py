import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_samples import VERSIONS, record
from benchmarks.harness.__main__ import main
from benchmarks.harness.ranking import cut_score, summarise_representations
from benchmarks.harness.records import RunRecord, append_record
from benchmarks.harness.tables import TABLES
from scipy.stats import spearmanr

from prcut import SimilarityGraph, normalized_cut
from prcut.errors import InvalidInputError

NOTHING = dict.fromkeys(["acc", "nmi", "ari", "ratio_cut", "normalized_cut", "wall_seconds"])
# name: cut, ACC
FOUND = {
    "raw": (3.0, 0.3),
    "thumbnail": (2.5, 0.25),
    "histogram": (3.5, 0.2),
    "gradients": (2.0, 0.5),
    "minilm": (1.0, 0.8),
}


def run(representation: str, seed: int = 0, **changes: Any) -> RunRecord:
    return record(
        "prcut_graph",
        seed,
        **{"table": "representations", "dataset": "cifar10", **changes},
        representation=representation,
    )


def runs(found: dict[str, tuple[float, float]], **changes: Any) -> list[RunRecord]:
    return [run(name, normalized_cut=cut, acc=acc, **changes) for name, (cut, acc) in found.items()]


def lines(text: str) -> list[list[str]]:
    """Cells of the lines of all tables, without their heads."""
    found = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [line.split(" | ") for line in found if not line.startswith("rank")]


# -- the score -----------------------------------------------------------------------------------


def test_score_is_one_without_a_cut_and_zero_by_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    ahead = 1 + torch.randperm(2999, generator=generator)[:10]
    neighbors = (torch.arange(3000)[:, None] + ahead) % 3000
    graph = SimilarityGraph.from_neighbors(neighbors)
    for n_clusters in (2, 5, 40):
        labels = torch.randint(0, n_clusters, (3000,), generator=generator)
        chance = float(normalized_cut(graph.weight, labels))
        assert abs(cut_score(chance, n_clusters)) < 0.02
        assert cut_score(0.0, n_clusters) == 1
    # one cluster says nothing, though it cuts nothing
    assert cut_score(0.0, 1) == 0


def test_empty_clusters_are_no_merit() -> None:
    all_used = run("raw", normalized_cut=1.5, used_clusters=10)
    few_used = run("pca-50", normalized_cut=0.5, used_clusters=3)
    text = summarise_representations([few_used, all_used])
    assert [line[1:5] for line in lines(text)] == [
        ["raw", "784", "0.667", "10"],
        ["pca-50", "784", "0.500", "3"],
    ]


# -- the table -----------------------------------------------------------------------------------


def test_cells_are_medians_with_their_range() -> None:
    records = [
        run("minilm", seed, normalized_cut=cut, acc=acc)
        for seed, (cut, acc) in enumerate(((0.9, 0.7), (0.45, 0.8), (1.35, 0.75)))
    ]
    text = summarise_representations([*records, run("raw", normalized_cut=4.5, acc=0.1)])
    assert lines(text) == [
        ["1", "minilm", "784", "0.800 (0.700–0.900)", "10", "0.750 (0.700–0.800)", "0.600"],
        ["2", "raw", "784", "0.000", "10", "0.100", "0.600"],
    ]
    assert text.startswith("### cifar10 (train), 15 neighbours, PRCut, same graph\n\n60,000 rows")
    assert "Score and rank use no labels" in text
    assert "Seeds 0, 1, 2; 4 runs, 0.2 min in all." in text
    assert "Machine: abacus" in text


def test_labels_have_no_part_in_the_order() -> None:
    expected = ["minilm", "gradients", "thumbnail", "raw", "histogram"]
    accuracies = [acc for _, acc in FOUND.values()]
    for shuffled in itertools.islice(itertools.permutations(accuracies), 0, 120, 7):
        found = {n: (cut, acc) for (n, (cut, _)), acc in zip(FOUND.items(), shuffled, strict=True)}
        changed = [
            run(name, normalized_cut=cut, acc=acc, nmi=1 - acc, ari=acc / 2)
            for name, (cut, acc) in found.items()
        ]
        assert [line[1] for line in lines(summarise_representations(changed))] == expected


def test_level_scores_share_a_rank() -> None:
    text = summarise_representations(runs({"a": (1.0, 0.2), "b": (2.0, 0.1), "c": (1.0, 0.3)}))
    assert [line[:2] for line in lines(text)] == [["1", "a"], ["1", "c"], ["3", "b"]]


def test_runs_that_were_not_done_are_shown_last() -> None:
    records = [
        run("a", status="timed out", **NOTHING),
        run("b", status="failed", message="no luck", **NOTHING),
        run("c"),
        run("c", 1, status="failed", message="lost", **NOTHING),
    ]
    text = summarise_representations(records)
    assert [(line[1], line[3]) for line in lines(text)] == [
        ("c", "0.911, 1 not done"),
        ("a", "> 600 s"),
        ("b", "failed"),
    ]
    assert "Failed: cifar10, b, prcut_graph, seed 0: no luck" in text
    assert "correlation of score and ACC: undefined over 1 representation." in text
    nothing = summarise_representations([run("b", status="failed", n_samples=None, **NOTHING)])
    assert "No run was finished." in nothing
    assert "Nothing to rank." in nothing


# -- the check -----------------------------------------------------------------------------------


def test_correlation_is_spearmans() -> None:
    for found in (
        FOUND,
        {**FOUND, "pca-50": (2.5, 0.9)},  # level scores
        {name: (4 - cut, acc) for name, (cut, acc) in FOUND.items()},
    ):
        cuts, accuracies = zip(*found.values(), strict=True)
        expected = spearmanr([-cut for cut in cuts], accuracies).statistic
        text = summarise_representations(runs(found))
        said = f"correlation of score and ACC: {expected:.2f} over {len(found)} representations."
        assert said in text


def test_accuracies_that_are_level_have_no_correlation() -> None:
    text = summarise_representations(runs({"a": (1.0, 0.5), "b": (2.0, 0.5)}))
    assert "correlation of score and ACC: undefined over 2 representations." in text


def test_a_wrong_choice_is_said() -> None:
    wrong = summarise_representations(runs({"a": (1.0, 0.5), "b": (2.0, 0.6)}))
    assert "**The score puts a first, ACC 0.500 against 0.600 of b.**" in wrong
    assert "The score puts" not in summarise_representations(runs(FOUND))


def test_data_sets_are_ranked_apart_and_summed_up() -> None:
    right = runs({"a": (1.0, 0.5), "b": (2.0, 0.4)})
    wrong = runs({"a": (1.0, 0.5), "b": (2.0, 0.6)}, dataset="banking77", split="all")
    text = summarise_representations([*right, *wrong])
    assert re.findall(r"^### (\w+)", text, re.MULTILINE) == ["cifar10", "banking77"]
    assert [line[0] for line in lines(text)] == ["1", "2", "1", "2"]
    assert (
        "Over 2 data sets: mean Spearman rank correlation 0.00, lowest -1.00; the representation "
        "with the best score has the best ACC in 1."
    ) in text
    assert "data sets:" not in summarise_representations(right)


# -- what may stand in one table -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"versions": {**VERSIONS, "prcut": "0.2.0", "prcut source": "aaaa"}},
            "prcut_graph: version of prcut: 0.1.0 (2 records), 0.2.0 (1 record)",
        ),
        (
            {"versions": {**VERSIONS, "prcut": "0.1.0", "prcut source": "bbbb"}},
            "source code of prcut: aaaa (2 records), bbbb (1 record)",
        ),
        ({"n_rows": 2000}, "cifar10: n_rows: none (2 records), 2000 (1 record)"),
    ],
)
def test_mixed_records_are_refused_or_named(changes: dict[str, Any], expected: str) -> None:
    records = [run("raw"), run("gradients"), run("minilm", **changes)]
    with pytest.raises(InvalidInputError, match=re.escape(expected)):
        summarise_representations(records)
    text = summarise_representations(records, mixed=True)
    assert f"**Mixed records:**\n- {expected}" in text


# -- the command ---------------------------------------------------------------------------------


def test_specs_cover_every_representation() -> None:
    specs = TABLES["representations"](False)
    assert {spec.seed for spec in specs} == {0, 1, 2}
    assert {(spec.method, spec.n_neighbors) for spec in specs} == {("prcut_graph", 15)}
    of = {
        dataset: [s.representation for s in specs if s.dataset == dataset and s.seed == 0]
        for dataset in ("cifar10", "banking77", "stackoverflow")
    }
    assert len(of["cifar10"]) == 6
    assert of["banking77"] == of["stackoverflow"] == ["tfidf-words", "tfidf-chars", "minilm"]
    assert {s.n_rows for s in specs if s.dataset == "cifar10"} == {5000}
    assert {spec.dataset for spec in TABLES["representations"](True)} == {"digits"}


def test_the_command_prints_and_keeps_the_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for one in runs(FOUND):
        append_record(tmp_path / "r/representations.jsonl", one)
    command = ["representations", "--results", "r", "--summary-only"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert (
        out
        == (tmp_path / "r/representations.md").read_text()
        == summarise_representations(runs(FOUND))
    )
    assert main([*command, "--plot"]) == 2
    assert capsys.readouterr().err == "error: representations has no plot; leave out --plot.\n"

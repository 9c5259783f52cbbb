import pytest
from benchmarks.harness import tables
from benchmarks.harness.methods import METHODS
from benchmarks.harness.peers import PEERS
from benchmarks.harness.tables import TABLES, missing_packages, parse_seeds, select_specs

from prcut.errors import InvalidInputError


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("quick", [False, True])
def test_every_run_of_a_table_is_another(name: str, quick: bool) -> None:
    specs = TABLES[name](quick)
    assert specs
    assert len({spec.key for spec in specs}) == len(specs)
    assert {spec.method for spec in specs} <= set(METHODS)
    for spec in specs:
        assert METHODS[spec.method].seeded or spec.seed == 0
    if quick and name != "quick":
        assert {(spec.n_rows, spec.seed) for spec in specs} == {(2000, 0)}


def test_tables_hold_what_they_say() -> None:
    peers = TABLES["peers"](False)
    assert {spec.table for spec in peers} == {"table3", "table4"}
    assert {spec.method for spec in peers} == {
        *PEERS,
        *("spectral_refined", "prcut", "prcut_graph", "prcut_cut", "prcut_trained"),
        *("prcut_fast", "prcut_best"),
        *("prcut_published_pixels", "prcut_published_representations"),
    }
    assert {s.seed for s in peers if s.method == "prcut"} == set(range(5))
    assert {s.seed for s in peers if s.method == "metis"} == set(range(3))
    quality = TABLES["quality"](False)
    assert {s.table for s in quality} == {"quality", "table2", "table3", "table4"}
    assert {s.seed for s in quality} == set(range(5))
    assert {s.time_limit for s in peers if "published" not in s.method} == {600.0}
    table2 = TABLES["table2"](False)
    assert {spec.n_neighbors for spec in table2} == {15, 50, 150}
    assert {s.seed for s in table2 if s.method == "spectral_clustering"} == set(range(10))
    cifar = next(spec for spec in peers if spec.dataset == "cifar10")
    assert (cifar.split, cifar.n_rows) == ("test", 5000)
    assert {(s.n_neighbors, s.split) for s in table2 if s.dataset == "cifar10"} == {(150, "train")}


def test_published_settings_are_those_of_the_space() -> None:
    """One seed each, and on pixels the paper's 150 neighbours alone in table 2."""
    published = [
        spec
        for name in ("table2", "peers")
        for spec in TABLES[name](False)
        if "published" in spec.method
    ]
    assert {spec.seed for spec in published} == {0}
    assert {s.n_neighbors for s in published if s.table == "table2"} == {150}
    for spec in published:
        assert spec.method.endswith("_pixels") == (spec.representation == "raw")


def test_parts_of_a_table_are_chosen_by_name() -> None:
    specs = TABLES["table3"](False)
    chosen = select_specs(
        specs, methods=["prcut", "hdbscan"], datasets=["usps"], seeds=[3, 4], time_limit=7.0
    )
    assert [(s.method, s.seed) for s in chosen] == [("hdbscan", 3), ("prcut", 3), ("prcut", 4)]
    assert {(s.dataset, s.time_limit) for s in chosen} == {("usps", 7.0)}
    assert select_specs(specs) == specs
    with pytest.raises(InvalidInputError, match="methods='prcat' is not in this table; choose"):
        select_specs(specs, methods=["prcat"])
    with pytest.raises(InvalidInputError, match="datasets='cifar10' is not in this table"):
        select_specs(specs, datasets=["cifar10"])


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-2", "1,,2", "0-9999999"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must be numbers such as 0-4"):
        parse_seeds(text)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_packages("prcut") == []
    changed = METHODS["metis"]._replace(packages=("numpy", "no-such-package"))
    monkeypatch.setitem(tables.METHODS, "metis", changed)
    assert missing_packages("metis") == ["no-such-package"]

import pytest
from benchmarks.harness.methods import METHODS
from benchmarks.harness.tables import TABLES


@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_a_table_is_another(name: str) -> None:
    specs = TABLES[name]()
    assert specs
    assert len({spec.key for spec in specs}) == len(specs)
    assert {spec.method for spec in specs} <= set(METHODS)
    for spec in specs:
        assert METHODS[spec.method].seeded or spec.seed == 0
        # published settings: one seed, and each for its own space
        if "published" in spec.method:
            assert spec.seed == 0
            assert spec.method.endswith("_pixels") == (spec.representation == "raw")

"""Labels on disk: the columns, the files, what is kept and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from prcut import Assigner
from prcut.curate.names import ClusterName, Names
from prcut.errors import DataWarning, InvalidInputError
from prcut.fit.config import FitConfig
from prcut.fit.outliers import Exemplars, OutlierRule
from prcut.runs import labels as library
from prcut.runs.labels import assign_parquet
from prcut.runtime.progress import Progress
from prcut.training.assigner.predict import assign_labels

N_CLUSTERS = 5


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1000, 6)).astype(np.float32)


@pytest.fixture
def assigner() -> Assigner:
    return Assigner(6, N_CLUSTERS, generator=torch.Generator().manual_seed(0))


def write_parts(folder: Path, rows: np.ndarray, ids: list[object]) -> Path:
    """Three files in two folders of different sizes, one of them empty."""
    for name, start, stop in (
        ("day=1/a.parquet", 0, 300),
        ("day=1/b.parquet", 300, 300),
        ("day=2/a.parquet", 300, len(rows)),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lists = pa.array(list(rows[start:stop]), pa.list_(pa.float32()))
        names = pa.array(ids[start:stop], pa.array(ids).type)
        pq.write_table(pa.table({"id": names, "embedding": lists}), folder / name)
    return folder


def read(folder: Path) -> pa.Table:
    files = sorted(folder.rglob("*.parquet"))
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def test_parquet_gives_the_same_files_with_ids_labels_and_probabilities(
    tmp_path: Path, rows: np.ndarray, assigner: Assigner
) -> None:
    ids: list[object] = [f"row {number}" for number in range(len(rows))]
    data = write_parts(tmp_path / "data", rows, ids)
    written = assign_parquet(
        assigner, str(data), tmp_path / "out", id_column="id", top=3, device="cpu"
    )
    assert written[1:] == (1000, 3, 0, None)
    names = [path.relative_to(data) for path in sorted(data.rglob("*.parquet"))]
    out = tmp_path / "out"
    assert names == [path.relative_to(out) for path in sorted(out.rglob("*.parquet"))]
    table = read(out)
    assert [str(one) for one in table.schema.types][1:3] == ["int32", "float"]
    assert table.schema.names == ["id", "label", "confidence", "clusters", "probs"]
    assert table["id"].to_pylist() == ids
    with torch.inference_mode():
        probs = assigner.probs(torch.from_numpy(rows))
    expected = probs.topk(3, 1)
    assert np.array_equal(table["label"].to_numpy(), probs.argmax(1).numpy())
    assert np.allclose(table["confidence"].to_numpy(), probs.amax(1).numpy(), atol=1e-6)
    found = np.array(table["clusters"].to_pylist())
    assert np.array_equal(found, expected.indices.numpy())
    assert np.allclose(np.array(table["probs"].to_pylist()), expected.values.numpy(), atol=1e-6)


def test_arrays_give_parts_of_numbered_rows(
    tmp_path: Path, rows: np.ndarray, assigner: Assigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_FILE_ROWS", 400)
    monkeypatch.setattr(library, "_GROUP_ROWS", 150)
    monkeypatch.setattr("prcut.runtime.sources._READ_BYTES", 6 * 4 * 70)
    np.save(tmp_path / "rows.npy", rows.astype(np.float64))
    seen: list[Progress] = []
    assign_parquet(
        assigner, tmp_path / "rows.npy", tmp_path / "out", device="cpu", on_progress=seen.append
    )
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [file.name for file in files] == [f"part-0000{i}.parquet" for i in range(3)]
    table = read(tmp_path / "out")
    assert table.schema.names == ["row", "label", "confidence"]
    assert table["row"].to_pylist() == list(range(1000))
    assert pq.ParquetFile(files[0]).num_row_groups > 1
    assert (seen[-1].done, seen[-1].total) == (1000, 1000)
    # a reader of the whole folder passes over what is not Parquet
    assert pq.read_table(tmp_path / "out").num_rows == 1000


def test_finished_files_are_kept_and_broken_ones_made_again(
    tmp_path: Path, rows: np.ndarray, assigner: Assigner
) -> None:
    data = write_parts(tmp_path / "data", rows, list(range(1000)))
    out = tmp_path / "out"
    assign_parquet(assigner, str(data), out, device="cpu")
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    assert assign_parquet(assigner, str(data), out, device="cpu").n_kept == 3
    cut, gone, kept = sorted(before)
    cut.write_bytes(before[cut][:-7])
    gone.unlink()
    (out / "day=1/.a.parquet.123.prcut-tmp").write_text("left by a killed run")
    stamp = kept.stat().st_mtime_ns
    assert assign_parquet(assigner, str(data), out, device="cpu").n_kept == 1
    assert {path: path.read_bytes() for path in out.rglob("*.parquet")} == before
    assert kept.stat().st_mtime_ns == stamp
    assert not list(out.rglob("*tmp"))


def test_refusals_are_worded(tmp_path: Path, rows: np.ndarray, assigner: Assigner) -> None:
    data = write_parts(tmp_path / "data", rows, list(range(1000)))

    def refused(message: str, model: Assigner, source: object, out: Path, **options: int) -> None:
        with pytest.raises(InvalidInputError, match=message):
            assign_parquet(model, source, out, device="cpu", **options)

    new = tmp_path / "new"
    refused("n_features=6 columns, the model was fitted to 7", Assigner(7, 2), str(data), new)
    refused("top=6 must be from 0 to n_clusters=5", assigner, str(data), new, top=6)
    refused("data holds other files; choose a new or empty", assigner, str(data), data)
    refused("Identity, which cannot assign new rows", torch.nn.Identity(), str(data), new)  # type: ignore[arg-type]
    assert not new.exists()
    assign_parquet(assigner, rows, new, device="cpu")
    refused("begun with another model", Assigner(6, N_CLUSTERS), rows, new)
    refused("begun with another top", assigner, rows, new, top=1)


def test_rows_that_are_refused_have_no_label_layer_id_or_name(
    tmp_path: Path, rows: np.ndarray, assigner: Assigner
) -> None:
    raw = assign_labels(assigner, rows)
    config = FitConfig.of("default", N_CLUSTERS)
    rule = OutlierRule(Exemplars.draw(rows, raw, None, config), 0.2, None, "euclidean")
    fine, coarse = (
        [ClusterName(f"{kind} {k}", [], [], 1) for k in range(size)]
        for kind, size in (("ü", N_CLUSTERS), ("layer", 2))
    )
    named = Names(fine, {2: coarse})
    merged, ids = np.arange(N_CLUSTERS) % 2, np.arange(N_CLUSTERS) + 10
    how: Any = {
        "layers": {2: merged},
        "names": named.columns({2: merged}),
        "cluster_ids": ids,
        "outliers": rule,
    }
    written = assign_parquet(assigner, rows, tmp_path / "out", **how, device="cpu")
    table = pq.read_table(tmp_path / "out")
    expected = ["row", "label", "confidence", "cluster", "label_2", "cluster_id", "name", "name_2"]
    assert table.schema.names == expected
    assert [str(one) for one in table.schema.types[3:6]] == ["int32", "int32", "int64"]
    refused = rule.rejects(rows)
    assert 0 < refused.sum() == written.n_outliers
    np.testing.assert_array_equal(table["label"], np.where(refused, -1, raw))
    np.testing.assert_array_equal(table["cluster"], raw)
    np.testing.assert_array_equal(table["label_2"], np.where(refused, -1, merged[raw]))
    np.testing.assert_array_equal(table["cluster_id"], np.where(refused, -1, ids[raw]))
    for column, names, group in (("name", fine, raw), ("name_2", coarse, merged[raw])):
        called = np.array([one.name for one in names], object)[group]
        assert table[column].to_pylist() == np.where(refused, None, called).tolist()
    changed = how | {"outliers": rule._replace(fraction=0.1)}
    with pytest.raises(InvalidInputError, match="another outliers"):
        assign_parquet(assigner, rows, tmp_path / "out", **changed, device="cpu")
    with pytest.raises(InvalidInputError, match="2 values of 'name' for n_clusters=5"):
        assign_parquet(assigner, rows, tmp_path / "new", names=Names(coarse, {}).columns({}))


def test_vectors_unlike_those_of_the_fit_are_warned_of(
    tmp_path: Path, rows: np.ndarray, assigner: Assigner
) -> None:
    assigner.standardize(torch.zeros(6), 1.1)
    assign_parquet(assigner, rows, tmp_path / "like", device="cpu")
    for name, unlike in (("larger", rows * 4), ("smaller", rows / 4), ("moved", rows + 5)):
        with pytest.warns(DataWarning, match="from the mean of the fitted rows"):
            assign_parquet(assigner, unlike, tmp_path / name, device="cpu")

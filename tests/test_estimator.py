import json
import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from prcut import PRCut, SimilarityGraph, build_graph, ratio_cut, train
from prcut.errors import CorruptFileError, DataWarning, InvalidInputError
from prcut.numerics.objective import hard_objective
from prcut.runtime.folder import plan_key
from prcut.ui.notebook import results_html

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
Blobs = tuple[np.ndarray, np.ndarray]


def quick(n_clusters: int = 3, **parameters: Any) -> PRCut:
    quickly = {"max_steps": 60, "n_init": 1, "learning_rate": 2e-2, "random_state": 0}
    return PRCut(n_clusters, **{**quickly, **parameters})


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    return make_blobs(240, 4, centers=3, cluster_std=0.6, random_state=0)


@pytest.fixture(scope="module")
def fitted(blobs: Blobs) -> PRCut:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return quick().fit(blobs[0])


# -- scikit-learn's own checks ----------------------------------------------------------------


# as of KMeans: a repeated row has its copies for neighbours, so the graph is another. On one graph
# weights equal repetitions: tests/fit/test_known.py
_OF_REPEATED_ROWS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "repeated rows make another graph"
    for kind in ("dense", "sparse")
}


# 4 clusters: check_estimator_sparse_* want as many columns of predict_proba as their y has classes
@parametrize_with_checks(
    [quick(4, max_steps=20)],
    expected_failed_checks=lambda _: _OF_REPEATED_ROWS,
)
def test_scikit_learn(estimator: PRCut, check: Any) -> None:
    check(estimator)


def test_output_as_a_data_frame(blobs: Blobs) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(blobs[0], columns=list("abcd"))
    model = quick().set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert out.columns.tolist() == ["prcut0", "prcut1", "prcut2"]
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))


# -- what a fit leaves ---------------------------------------------------------------------------


def test_attributes(fitted: PRCut, blobs: Blobs) -> None:
    rows, labels = blobs
    assert adjusted_rand_score(labels, fitted.labels_) == 1
    assert fitted.labels_.dtype == np.int64
    assert fitted.n_features_in_ == 4
    assert fitted.n_steps_ == fitted.history_["step"][-1]
    assert not hasattr(fitted, "probs_")
    probs = fitted.predict_proba(rows)
    assert probs.dtype == np.float32
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(probs.argmax(1), fitted.labels_)
    graph = build_graph(rows, 10)
    found = torch.from_numpy(fitted.labels_)
    assert fitted.ratio_cut_ == pytest.approx(ratio_cut(graph.weight, found, 3).item())
    assert fitted.objective_ == pytest.approx(hard_objective(graph.weight, found, 3))
    assert fitted.score(rows) == pytest.approx(1 - fitted.objective_ / 2)


@pytest.mark.parametrize("make", [np.array, csr_array], ids=["dense", "sparse"])
def test_the_assigner_is_distilled_when_it_is_first_needed(
    make: Any, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    distilled: list[int] = []
    monkeypatch.setattr(
        "prcut.fit.assign.train", lambda *a, **b: distilled.append(1) or train(*a, **b)
    )
    rows = make(blobs[0])
    model = quick(max_steps=50).fit(rows)
    assert model.fit_predict(rows) is model.labels_
    assert "rows per cluster" in results_html(model)
    assert distilled == []
    eager = quick(max_steps=50, store_probs=True).fit(rows)
    assert distilled == [1]
    (rows if make is np.array else rows.data)[:] = 0  # the model has its own copy
    with ThreadPoolExecutor(3) as pool:
        probs = list(pool.map(lambda _: model.predict_proba(make(blobs[0])), range(3)))
    assert distilled == [1, 1]
    for one in probs:
        np.testing.assert_array_equal(one, eager.probs_)
    again = pickle.loads(pickle.dumps(quick(max_steps=50).fit(make(blobs[0]))))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(make(blobs[0])), eager.probs_)


def test_transform_gives_the_bottleneck_or_the_logits(fitted: PRCut, blobs: Blobs) -> None:
    rows = blobs[0]
    np.testing.assert_array_equal(fitted.transform(rows).argmax(1), fitted.labels_)
    model = quick(hidden=(16,), bottleneck=2).fit(rows)
    assert model.transform(rows).shape == (240, 2)
    assert model.get_feature_names_out().tolist() == ["prcut0", "prcut1"]


def test_same_seed_same_labels_and_other_seeds_other_starts(blobs: Blobs) -> None:
    one, two, other = (quick(random_state=seed).fit(blobs[0]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.history_ == {}  # nothing was trained yet
    assert [step.name for step in one.history_.steps][-1].startswith("start ")
    for model in (one, two, other):
        model.predict_proba(blobs[0])
    for name, values in one.history_.items():
        np.testing.assert_array_equal(values, two.history_[name])
    assert (one.history_["objective"] != other.history_["objective"]).any()


# -- kinds of input ------------------------------------------------------------------------------


def test_sparse_rows_give_what_dense_rows_give(blobs: Blobs) -> None:
    rows = np.where(np.abs(blobs[0]) < 1, 0, blobs[0])
    dense, sparse = quick().fit(rows), quick().fit(csr_matrix(rows))
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    np.testing.assert_allclose(
        sparse.predict_proba(csr_matrix(rows)), dense.predict_proba(rows), atol=1e-4
    )


def test_a_graph_in_place_of_neighbours(blobs: Blobs) -> None:
    rows, _ = blobs
    halves = (np.arange(240) % 2).astype(np.int64)  # the graph knows better than the features
    features = np.c_[rows, 10 * halves]
    graph = SimilarityGraph.from_labels(torch.from_numpy(halves))
    by_graph = quick(2, max_steps=400).fit(features, graph=graph)
    assert adjusted_rand_score(halves, by_graph.labels_) == 1
    same = quick(2, max_steps=400).fit(features, graph=graph.to_scipy())
    np.testing.assert_array_equal(same.labels_, by_graph.labels_)


def test_precomputed_similarities(blobs: Blobs, tmp_path: Path) -> None:
    rows, labels = blobs
    similarity = build_graph(rows, 10).to_scipy()
    for matrix in (similarity, similarity.toarray()):
        model = quick(affinity="precomputed").fit(matrix)
        assert adjusted_rand_score(labels, model.labels_) == 1
        assert adjusted_rand_score(labels, model.predict(matrix)) == 1
        assert model.predict_proba(matrix[:5]).shape == (5, 3)
        assert model.score(matrix) > 0.9
    model.save(tmp_path)
    np.testing.assert_array_equal(PRCut.load(tmp_path).predict(matrix), model.predict(matrix))
    for call in (lambda: model.export_onnx(tmp_path / "x.onnx"), lambda: model.push_to_hub("x/y")):
        with pytest.raises(InvalidInputError, match="predicts by the rows of fit"):
            call()


def test_a_stream_is_followed_and_clusters_keep_their_numbers() -> None:
    centers = np.array([[0.0, 0], [6, 0], [0, 6]])
    rng = np.random.default_rng(0)

    def part(shift: float) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(3, size=300)
        return centers[labels] + shift + rng.normal(0, 0.5, (300, 2)), labels

    model = quick()
    for _ in range(10):
        rows, labels = part(0.0)
        model.partial_fit(rows)
    assert adjusted_rand_score(labels, model.labels_) == 1
    number = {int(y): int(c) for y, c in zip(labels, model.labels_, strict=True)}
    for step in range(5):
        rows, labels = part(0.2 * step)
        model.partial_fit(rows)
        assert model.labels_.tolist() == [number[int(y)] for y in labels]
    assert model.n_steps_ == model.history_["step"][-1] == 150


# -- saving --------------------------------------------------------------------------------------


def test_save_and_load(fitted: PRCut, blobs: Blobs, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    pretrained = PRCut.from_pretrained(str(tmp_path / "model"))
    np.testing.assert_array_equal(pretrained.predict(blobs[0]), fitted.labels_)
    loaded = PRCut.load(tmp_path / "model")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    assert loaded.objective_ == fitted.objective_
    assert loaded.n_features_in_ == 4
    for name, values in fitted.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], values)
    # a description that was written by a stranger sets nothing else
    config = json.loads((tmp_path / "model/config.json").read_text())
    config["description"]["parameters"]["__class__"] = "x"
    config["description"]["fitted"] |= {"predict": "x", "_graph": "x"}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptFileError, match=r"config\.json is altered"):
        PRCut.load(tmp_path / "model")
    config.pop("checksum")
    config["checksum"] = plan_key(config)
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    strange = PRCut.load(tmp_path / "model")
    np.testing.assert_array_equal(strange.predict(blobs[0]), fitted.labels_)
    assert callable(strange._graph)
    loaded.partial_fit(blobs[0])  # a loaded model learns on
    assert loaded.n_steps_ > fitted.n_steps_
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)


def test_names_functions_and_generators_are_saved_as_far_as_json_can(
    blobs: Blobs, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(blobs[0], columns=list("abcd"))
    model = quick(
        similarity=lambda a, b: np.ones(len(a)),
        random_state=np.random.RandomState(0),
        n_neighbors=np.int64(10),
        hidden=(8,),
    ).fit(frame)
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    assert loaded.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(InvalidInputError, match="similarity='function' must be"):
        loaded.score(frame)


# -- every error, with its wording ---------------------------------------------------------------

ROWS = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("parameters", "rows", "message"),
    [
        ({"n_clusters": "many"}, ROWS, "n_clusters='many' must be"),
        ({"n_clusters": (5, 3)}, ROWS, "n_clusters=(5, 3) must rise"),
        ({"n_clusters": 2.5}, ROWS, "n_clusters=2.5 must be a whole number >= 1."),
        ({"n_clusters": 21}, ROWS, "n_samples=20 should be >= n_clusters=21."),
        ({"preset": "fast"}, ROWS, "preset='fast' must be 'default', 'paper-pixels' or"),
        ({"affinity": "rbf"}, ROWS, "affinity='rbf' must be 'nearest_neighbors' or 'precomputed'."),
        ({"n_neighbors": 20}, ROWS, "n_neighbors=20 must be < n_samples=20"),
        ({"batch_size": 0}, ROWS, "batch_size=0 must be a whole number >= 1"),
        ({"device": "abacus"}, ROWS, "device='abacus' cannot be used: "),
        ({}, 1e30 * ROWS, "so their distances leave float32; scale the features down."),
        ({"affinity": "precomputed"}, np.triu(np.ones((5, 5))), "is not symmetric"),
        (
            {"affinity": "precomputed"},
            np.eye(5),
            "n_samples=5 rows has no edges, so there is nothing to cut",
        ),
    ],
)
def test_wrong_parameters_and_rows(parameters: dict[str, Any], rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        quick(**parameters).fit(rows)


def test_wrong_calls(fitted: PRCut) -> None:
    with pytest.raises(ValueError, match="X has 3 features, but PRCut is expecting 4"):
        fitted.predict(ROWS)
    with pytest.raises(InvalidInputError, match=r"graph has n_samples=2 rows, X has 20; they must"):
        quick().fit(ROWS, graph=SimilarityGraph.from_neighbors([[1], [0]]))
    with pytest.raises(InvalidInputError, match="partial_fit needs features"):
        quick(affinity="precomputed").partial_fit(np.eye(3))
    with pytest.raises(InvalidInputError, match="n_clusters"):
        PRCut("auto").partial_fit(ROWS)


# -- what a person sees --------------------------------------------------------------------------


@pytest.mark.costly("trains, and so loads what training needs")
def test_verbose_shows_progress_on_standard_error_alone(capfd: pytest.CaptureFixture[str]) -> None:
    quick(max_steps=20).fit(ROWS)
    assert capfd.readouterr() == ("", "")
    quick(solver="train", max_steps=30, n_init=2, verbose=True).fit(ROWS)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("training 2/2: 30/30  cut ")
    assert "clusters 3/3  confidence 0." in err


def test_columns_in_units_of_their_own(tmp_path: Path) -> None:
    rows, labels = make_blobs(200, 12, centers=3, random_state=0)
    rows = np.hstack([rows, np.random.default_rng(0).normal(0, 1e4, (200, 1))])
    with pytest.warns(DataWarning, match="divided by their standard deviations"):
        model = quick().fit(rows)
    assert adjusted_rand_score(labels, model.labels_) == 1
    assert (model.predict(rows) == model.labels_).all()
    expected = 1 - model.objective_ / 2
    assert model.score(rows) == pytest.approx(expected)
    model.save(tmp_path)
    assert PRCut.load(tmp_path).score(rows) == pytest.approx(expected)
    model.partial_fit(rows).partial_fit(rows)
    assert adjusted_rand_score(labels, model.labels_) == 1
    as_they_come = quick().fit(rows, graph=build_graph(rows))
    assert adjusted_rand_score(labels, as_they_come.labels_) < 0.1


@pytest.mark.costly("counts the clusters twice")
def test_number_of_clusters_is_found(tmp_path: Path) -> None:
    rows, labels = make_blobs(300, 8, centers=6, cluster_std=0.7, random_state=0)
    model = PRCut("auto", random_state=0).fit(rows)
    assert model.n_clusters_ == model.cluster_count_.n_clusters == 6
    assert adjusted_rand_score(labels, model.labels_) == 1
    assert model.predict_proba(rows).shape == model.transform(rows).shape == (300, 6)
    assert len(model.get_feature_names_out()) == 6
    assert "of 6" in results_html(model)
    model.save(tmp_path)
    assert PRCut.load(tmp_path).n_clusters_ == 6
    within = PRCut((2, 4), random_state=0).fit(rows)
    assert 2 <= within.n_clusters_ <= 4
    given = within.set_params(n_clusters=3).fit(rows)
    assert given.n_clusters_ == 3
    assert not hasattr(given, "cluster_count_")


# -- fits that follow others -----------------------------------------------------------------------


def test_nothing_of_an_earlier_fit_remains(blobs: Blobs) -> None:
    rows = blobs[0]
    model = quick((2, 4), store_probs=True, outliers=0.0)
    model.fit(rows, sample_weight=np.full(len(rows), 2.0), cannot_link=[[0, 1]])
    model.set_params(n_clusters=3, store_probs=False, outliers=None)
    for refit in (model.fit, model.partial_fit):
        refit(rows)
        fresh = quick()
        getattr(fresh, refit.__name__)(rows)
        assert set(vars(model)) - set(vars(fresh)) <= {"n_neighbors_"}
        model.probs_, model.violated_links_ = model.labels_, model.labels_
    model.fit(rows).update(rows[:20])
    assert not hasattr(model, "violated_links_")


def test_links_that_were_violated_and_counts_are_saved(blobs: Blobs, tmp_path: Path) -> None:
    same = np.flatnonzero(blobs[1] == 0)[:2]
    model = quick((2, 4)).fit(blobs[0], cannot_link=[same])
    model.violated_links_ = same[None]
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    np.testing.assert_array_equal(loaded.violated_links_, same[None])
    for ours, theirs in zip(model.cluster_count_, loaded.cluster_count_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("far", [1e9, 1e12])
def test_rows_far_from_zero(blobs: Blobs, far: float, tmp_path: Path) -> None:
    rows = blobs[0] + far
    model = quick(outliers=0.05).fit(rows)
    model.save(tmp_path)
    for one in (model, PRCut.load(tmp_path)):
        np.testing.assert_array_equal(one.predict(rows), model.labels_)
        assert adjusted_rand_score(one.predict(rows), quick().fit(blobs[0]).labels_) > 0.9
    assert (model.update(rows[:40]).predict(rows) == model.labels_[:240]).mean() > 0.95
    with pytest.raises(InvalidInputError, match="subtract their mean before fit"):
        model.export_onnx(tmp_path / "far.onnx")


@pytest.mark.parametrize("make", [np.asarray, csr_matrix])
def test_rows_of_the_fit_keep_their_labels(make: Any, tmp_path: Path) -> None:
    rows = make(make_blobs(480, centers=12, random_state=0)[0])
    model = PRCut(20, effort="fast", random_state=0).fit(rows)
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    assert not model._start.is_made  # nothing had to be distilled
    model.save(tmp_path)
    for one in (model, PRCut.load(tmp_path)):
        order = np.random.default_rng(0).permutation(480)
        np.testing.assert_array_equal(one.predict(rows[order]), model.labels_[order])
        probs = one.predict_proba(rows)
        np.testing.assert_array_equal(probs.argmax(1), model.labels_)
        np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)


def test_the_first_choice_that_is_documented_is_the_default() -> None:
    described = re.findall(r"^    (\w+) : \{(\"[^}]+)\}$", PRCut.__doc__ or "", re.MULTILINE)
    defaults = PRCut().get_params()
    assert len(described) > 3
    for name, choices in described:
        assert choices.split(", ")[0] == f'"{defaults[name]}"', name

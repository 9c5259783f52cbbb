"""What notebooks show: an estimator, its history, and bars while it is fitted."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prcut import PRCut
from prcut.ui.notebook import History, results_html

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def model() -> PRCut:
    rows, _ = make_blobs([150, 100, 50], 4, random_state=0)
    return PRCut(3, max_steps=30, n_init=1, random_state=0).fit(rows.astype(np.float32))


def test_a_fitted_estimator_shows_its_results_below_the_diagram(model: PRCut) -> None:
    shown = model._repr_html_()
    assert "sk-estimator" in shown  # scikit-learn's own diagram is there
    assert f"{model.ratio_cut_:.4g}" in shown
    assert "3 of 3" in shown
    sizes = np.bincount(model.labels_)
    assert f"from {sizes.max()} to {sizes.min()} rows" in shown
    assert "3 of 3" in model._repr_mimebundle_()["text/html"]
    unfitted = PRCut(3)._repr_html_()
    assert "sk-estimator" in unfitted
    assert "ratio cut" not in unfitted
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")


def test_inside_a_pipeline_the_diagram_is_that_of_the_pipeline(model: PRCut) -> None:
    shown = make_pipeline(StandardScaler(), model)._repr_html_()
    assert "StandardScaler" in shown
    assert "PRCut" in shown


def test_history_is_a_dict_that_draws_itself(model: PRCut, tmp_path: Path) -> None:
    assert isinstance(model.history_, dict)
    assert "combined starts" in model.history_._repr_html_()
    model.predict(np.zeros((1, model.n_features_in_), np.float32))
    shown = model.history_._repr_html_()
    assert "30 steps" in shown
    assert len(re.findall("<polyline", shown)) == 2  # a distillation has no cut
    assert "No training steps" in History(step=np.empty(0))._repr_html_()
    assert set(pickle.loads(pickle.dumps(model.history_))) == set(model.history_)  # noqa: S301
    model.save(tmp_path / "model")
    assert "30 steps" in PRCut.load(tmp_path / "model").history_._repr_html_()


def test_many_clusters_share_bars() -> None:
    many = PRCut(1000)
    many.labels_, many.n_clusters_ = np.repeat(np.arange(1000), 2), 1000
    assert results_html(many).count("<rect") == 100


def test_bars_in_a_kernel_need_no_extension() -> None:
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cell = """
import sys
sys.modules["ipywidgets"] = None  # as where it is not installed
import numpy as np
from prcut import PRCut
rows = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
model = PRCut(2, max_steps=30, n_init=1, n_neighbors=5, random_state=0, verbose=True).fit(rows)
"""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in (cell, "model")]
    )
    client.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    bars = [out for out in book.cells[0].outputs if out.output_type == "display_data"]
    assert len(bars) == 1  # one bar that was updated
    assert re.search(r"training.*━.*30/30", bars[0]["data"]["text/html"])
    assert re.search(r"training.*30/30", bars[0]["data"]["text/plain"])
    printed = [out.text for out in book.cells[0].outputs if out.output_type == "stream"]
    assert not any("ipywidgets" in text for text in printed)
    assert "ratio cut" in book.cells[1].outputs[0]["data"]["text/html"]

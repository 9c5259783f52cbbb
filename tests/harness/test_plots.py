import sys
from pathlib import Path

import pytest
from bench_samples import record
from benchmarks.harness.plots import plot_quality

from prcut.errors import InvalidInputError, PRCutError


def test_pictures_name_every_method_and_are_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    records = [
        record("prcut", acc=0.8),
        record("prcut", 1, acc=0.9),
        record("metis", acc=0.85),
        record("metis", n_neighbors=50),
        record("hdbscan", status="timed out", acc=None, wall_seconds=None),
    ]
    for name in ("one.svg", "two.svg", "one.png"):
        plot_quality(records, tmp_path / name)
    picture = (tmp_path / "one.svg").read_text()
    assert picture == (tmp_path / "two.svg").read_text()
    for text in ("PRCut, 15 nb.", "METIS, 50 nb.", "not done: HDBSCAN (&gt; 600 s)", "ACC"):
        assert f"<!-- {text} -->" in picture
    assert imread(tmp_path / "one.png").std() > 0


def test_labels_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.harness import plots

    boxes = []
    place = plots._place_labels

    def watched(axes: object, points: list[plots._Point]) -> None:
        place(axes, points)
        renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
        boxes.extend(text.get_window_extent(renderer) for text in axes.texts)  # type: ignore[attr-defined]

    monkeypatch.setattr(plots, "_place_labels", watched)
    names = ("prcut", "metis", "leiden", "leiden_k", "evoc")
    # all but at the same place
    records = [record(name, acc=0.8 + i / 500, graph_seconds=0) for i, name in enumerate(names)]
    plot_quality(records, tmp_path / "picture.png")
    assert len(boxes) == len(names)
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_what_cannot_be_drawn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[bench\]'"):
        plot_quality([record()], tmp_path / "picture.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    with pytest.raises(InvalidInputError, match=r"must end with .png or .svg"):
        plot_quality([record()], tmp_path / "picture.gif")
    with pytest.raises(InvalidInputError, match="nothing to draw"):
        plot_quality([record(status="failed")], tmp_path / "picture.png")

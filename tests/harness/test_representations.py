from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.harness.datasets import Dataset
from benchmarks.harness.inputs import load_bench_dataset, load_inputs, prepare_inputs
from benchmarks.harness.records import RunSpec
from benchmarks.harness.representations import REPRESENTATIONS, represent

from prcut.errors import InvalidInputError

N_FEATURES = {
    "pca-50": (50, 50),
    "thumbnail": (64, 192),
    "histogram": (32, 512),
    "gradients": (288, 288),
    "tfidf-words": (100, 100),
    "tfidf-chars": (100, 100),
}


def images(
    n_samples: int = 120, height: int = 20, width: int = 28, colour: bool = False
) -> Dataset:
    rng = np.random.default_rng(0)
    shape = (n_samples, height, width, 3) if colour else (n_samples, height, width)
    return one(rng.integers(0, 256, shape, np.uint8))


def one(items: np.ndarray) -> Dataset:
    return Dataset("images", "all", items, np.zeros(len(items), np.int64))


def texts(n_samples: int = 150) -> Dataset:
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfk" for b in "aeiou" for c in "lmnrst"])
    items = [" ".join(rng.choice(words, 8)) for _ in range(n_samples)]
    return Dataset("texts", "all", items, np.zeros(n_samples, np.int64))


@pytest.mark.parametrize("name", REPRESENTATIONS)
@pytest.mark.parametrize("colour", [False, True])
def test_rows_are_finite_and_the_same_again(name: str, colour: bool) -> None:
    is_text = REPRESENTATIONS[name].kind == "texts"
    dataset = texts() if is_text else images(colour=colour)
    rows = represent(dataset, name)
    assert rows.shape == (len(dataset.items), N_FEATURES[name][colour])
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    np.testing.assert_array_equal(represent(dataset, name), rows)


@pytest.mark.parametrize("name", ["tfidf-words", "tfidf-chars"])
def test_texts_have_unit_length_and_those_without_words_none(name: str) -> None:
    dataset = texts()
    rows = represent(dataset._replace(items=[*dataset.items, ""]), name)
    np.testing.assert_allclose(np.linalg.norm(rows[:-1], axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(rows[-1], 0)


def test_texts_with_the_same_words_are_near() -> None:
    dataset = texts()
    items = [*dataset.items, " ".join(reversed(dataset.items[0].split()))]
    rows = represent(dataset._replace(items=items), "tfidf-words")
    similar = rows @ rows[-1]
    assert similar[:-1].argmax() == 0


def test_histograms_hold_every_pixel_once() -> None:
    for dataset in (images(), images(colour=True)):
        shares = represent(dataset, "histogram") ** 2
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    # half black, a quarter white, a quarter of the brightest red
    picture = np.zeros((1, 4, 4, 3), np.uint8)
    picture[0, 0] = 255
    picture[0, 1, :, 0] = 255
    (roots,) = represent(one(picture), "histogram")
    found = {int(i): round(float(roots[i] ** 2), 4) for i in np.flatnonzero(roots)}
    assert found == {0: 0.5, 511: 0.25, 7 * 64: 0.25}
    (roots,) = represent(one(np.array([[[0, 7, 8, 255]]], np.uint8)), "histogram")
    assert np.flatnonzero(roots).tolist() == [0, 1, 31]


def test_a_histogram_does_not_know_where_pixels_are() -> None:
    dataset = images(colour=True)
    turned = one(np.ascontiguousarray(dataset.items[:, ::-1, ::-1]))
    np.testing.assert_array_equal(represent(turned, "histogram"), represent(dataset, "histogram"))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (16, 32), (20, 28), (5, 9)])
def test_thumbnails_are_means_of_areas(height: int, width: int) -> None:
    dataset = images(30, height, width)
    pixels = dataset.pixels()
    small = represent(dataset, "thumbnail")
    np.testing.assert_allclose(small.mean(1), pixels.mean(1), rtol=1e-5)
    # every pixel of 8 × 8 areas of its own, which needs no cut pixels
    fine = pixels.reshape(30, height, 1, width, 1).repeat(8, 2).repeat(8, 4)
    expected = fine.reshape(30, 8, height, 8, width).mean((2, 4)).reshape(30, -1)
    np.testing.assert_allclose(small, expected, rtol=1e-4)


def test_colours_of_a_thumbnail_stay_apart() -> None:
    picture = np.zeros((1, 16, 16, 3), np.uint8)
    picture[..., 1] = 255
    small = represent(one(picture), "thumbnail").reshape(8, 8, 3)
    np.testing.assert_allclose(small, np.broadcast_to([0, 1, 0], small.shape), atol=1e-6)


@pytest.mark.parametrize(("turn", "orientation"), [(0, 0), (1, 4)])
def test_gradients_of_one_edge(turn: int, orientation: int) -> None:
    picture = np.zeros((16, 16), np.uint8)
    picture[:, 6:] = 255  # an edge between columns 5 and 6, in the second of four cells
    picture = np.rot90(picture, -turn)
    (found,) = represent(one(np.stack([picture])), "gradients").reshape(1, 3, 3, 2, 2, 8)
    if turn:  # blocks, and the cells in them, as they would be upright
        found = found.transpose(1, 0, 3, 2, 4)
    assert np.flatnonzero(found.any((0, 1, 2, 3))).tolist() == [orientation]
    strength = found[..., orientation]
    # blocks of columns 0–1 and 1–2 see the edge in two cells each; the third sees nothing
    np.testing.assert_allclose(strength[:, 0], np.tile([[0, 0.5**0.5]] * 2, (3, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(strength[:, 1], np.tile([[0.5**0.5, 0]] * 2, (3, 1, 1)), atol=1e-5)
    np.testing.assert_array_equal(strength[:, 2], 0)


def test_gradients_ignore_light_and_contrast_and_a_flat_image_has_none() -> None:
    rng = np.random.default_rng(0)
    items = rng.integers(0, 64, (5, 16, 16), np.uint8)
    found = represent(one(items), "gradients")
    np.testing.assert_allclose(represent(one(items * 2 + 70), "gradients"), found, atol=1e-5)
    np.testing.assert_allclose(represent(one(255 - items), "gradients"), found, atol=1e-5)
    np.testing.assert_array_equal(represent(one(np.full_like(items, 9)), "gradients"), 0)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = images(50)
    names = ("thumbnail", "histogram", "gradients")
    whole = [represent(dataset, name) for name in names]
    monkeypatch.setattr("benchmarks.harness.representations._CHUNK", 7)
    for name, expected in zip(names, whole, strict=True):
        np.testing.assert_allclose(represent(dataset, name), expected, rtol=1e-5)


def test_principal_components_keep_what_varies() -> None:
    dataset = load_bench_dataset("digits", "all", 400)
    pixels, rows = dataset.pixels(), represent(dataset, "pca-50")
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-4)
    assert rows.var(0).sum() > 0.99 * pixels.var(0).sum()


def test_what_cannot_be_represented_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'gradients' takes images, texts holds texts"):
        represent(texts(), "gradients")
    with pytest.raises(InvalidInputError, match="'tfidf-words' takes texts, images holds images"):
        represent(images(), "tfidf-words")
    with pytest.raises(InvalidInputError, match="n_samples=20 and n_features=560 must be >= 50"):
        represent(images(20), "pca-50")
    with pytest.raises(InvalidInputError, match="must be >= 100"):
        represent(texts(20), "tfidf-chars")


def test_inputs_of_a_run_are_its_representation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path))
    spec = RunSpec("representations", "digits", "all", "gradients", 5, "prcut_graph", 0, 200)
    folder = prepare_inputs(spec)
    expected = represent(load_bench_dataset("digits", "all", 200), "gradients")
    np.testing.assert_array_equal(load_inputs(folder, 5).rows, expected)
    assert prepare_inputs(replace(spec, representation="histogram")) != folder

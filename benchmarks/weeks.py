"""Eight weeks in which classes appear, split and vanish: ids that last, beside fitting anew.

    python benchmarks/weeks.py            # Banking77 and StackOverflow, ten minutes
    python benchmarks/weeks.py --quick    # planted blobs

A class in ten appears in the fourth week, one in ten vanishes in the fifth, and one in ten splits
in the sixth: the class nearest to it appears then. Every week, ``update`` is given the rows of the
week and those of the two weeks before with the ids that they had. The other way fits the same rows
anew, is told how many classes they have, and matches its clusters with the ids by the Hungarian
method. BERTopic, as it comes, fits the rows of each week and is merged with what it was by
``merge_models``: it gives earlier rows no new ids, drops no topic, and has rows without one (−1).
``kept`` is the share of earlier rows whose id stays, ACC that of the rows of the week. A birth is
found where most rows of the class have an id of their own in the last week; a death where the id
that the class had is no more.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_blobs

from _embedded import rows_of
from _verdict import Table, keep, verdict
from prcut import PRCut
from prcut.numerics.matching import count_shared, match_counts

N_WEEKS, APPEARS, VANISHES, SPLITS = 8, 3, 4, 5
SETS = "banking77", "stackoverflow"


class World(NamedTuple):
    """Rows with class and week, and the classes that something happens to."""

    rows: np.ndarray
    classes: np.ndarray
    week: np.ndarray
    born: list[int]
    dead: list[int]


def plant(rows: np.ndarray, classes: np.ndarray, seed: int = 0) -> World:
    """Deal rows out to weeks, and leave out those of classes that are not there then."""
    rng = np.random.default_rng(seed)
    n_classes = int(classes.max()) + 1
    n_each = max(1, n_classes // 10)
    drawn = rng.permutation(n_classes)
    appear, vanish, halve = drawn[:n_each], drawn[n_each : 2 * n_each], drawn[2 * n_each :][:n_each]
    centers = np.stack([rows[classes == one].mean(0) for one in range(n_classes)])
    left = set(drawn[3 * n_each :].tolist())
    split = []
    for one in halve:
        split.append(min(left, key=lambda other: ((centers[other] - centers[one]) ** 2).sum()))
        left.remove(split[-1])
    week = rng.integers(N_WEEKS, size=len(rows))
    is_there = ~(np.isin(classes, appear) & (week < APPEARS))
    is_there &= ~(np.isin(classes, vanish) & (week >= VANISHES))
    is_there &= ~(np.isin(classes, split) & (week < SPLITS))
    born = [*appear.tolist(), *split]
    return World(rows[is_there], classes[is_there], week[is_there], born, vanish.tolist())


class Story(NamedTuple):
    """Ids of all rows, shares of earlier rows that kept theirs, and ids at the end."""

    ids: np.ndarray
    kept: list[float]
    alive: np.ndarray
    n_births: int
    n_deaths: int
    n_early: int  # ids that were given before anything happened


def follow(world: World) -> Story:
    """Update week by week."""
    ids, kept = np.full(len(world.rows), -1), []
    first = world.week == 0
    model = PRCut(len(np.unique(world.classes[first])), random_state=0).fit(world.rows[first])
    ids[first] = model.cluster_ids_[model.labels_]
    n_births = n_deaths = n_early = 0
    for week in range(1, N_WEEKS):
        new, old = np.flatnonzero(world.week == week), _window(world, week)
        n_early = int(ids.max()) + 1 if week == APPEARS else n_early
        model.update(world.rows[new], world.rows[old], old_ids=ids[old])
        found = model.cluster_ids_[model.labels_]
        kept.append(float((found[: len(old)] == ids[old]).mean()))
        ids[new] = found[len(old) :]
        ids[old] = found[: len(old)]
        n_births += sum(one.kind == "birth" for one in model.changes_)
        n_deaths += sum(one.kind != "birth" for one in model.changes_)
    return Story(ids, kept, model.cluster_ids_, n_births, n_deaths, n_early)


def fit_anew(world: World) -> Story:
    """Fit every week anew, and match the clusters with the ids of the earlier rows."""
    ids, kept = np.full(len(world.rows), -1), []
    n_ids = n_births = n_deaths = n_early = 0
    alive = np.empty(0, np.int64)
    for week in range(N_WEEKS):
        new, old = np.flatnonzero(world.week == week), _window(world, week)
        n_early = n_ids if week == APPEARS else n_early
        both = np.concatenate([old, new])
        n_clusters = len(np.unique(world.classes[both]))
        labels = PRCut(n_clusters, random_state=0).fit(world.rows[both]).labels_
        names = np.full(n_clusters, -1)
        if week:
            shared = count_shared(labels[: len(old)], ids[old], n_clusters, n_ids)
            for cluster, one in zip(*match_counts(shared), strict=True):
                names[cluster] = one if shared[cluster, one] else -1
        is_born = names < 0
        names[is_born] = n_ids + np.arange(is_born.sum())
        if week:
            n_births += int(is_born.sum())
            n_deaths += len(np.setdiff1d(alive, names))
            kept.append(float((names[labels[: len(old)]] == ids[old]).mean()))
        n_ids, alive = n_ids + int(is_born.sum()), names
        ids[both] = names[labels]
    return Story(ids, kept, alive, n_births, n_deaths, n_early)


def merge_topics(world: World) -> Story:
    """Fit BERTopic to every week, and merge it with the earlier topics."""
    from bertopic import BERTopic

    ids, merged, n_early = np.full(len(world.rows), -1), None, 0
    n_topics: list[int] = []
    for week in range(N_WEEKS):
        new = np.flatnonzero(world.week == week)
        # topics are compared by their embeddings; the words, which name them, do not matter here
        texts = [f"word{row % 100}" for row in new]
        topics = BERTopic().fit(texts, embeddings=world.rows[new])
        merged = BERTopic.merge_models([merged, topics]) if merged is not None else topics
        ids[new] = np.asarray(merged.topics_)[-len(new) :]
        n_early = n_topics[-1] if week == APPEARS else n_early
        n_topics.append(max(merged.topics_) + 1)
    n_births = n_topics[-1] - n_topics[0]
    return Story(ids, [1.0] * (N_WEEKS - 1), np.arange(n_topics[-1]), n_births, 0, n_early)


def _window(world: World, week: int) -> np.ndarray:
    return np.flatnonzero((world.week < week) & (world.week >= week - 2))


def _main_id(story: Story, rows: np.ndarray) -> int:
    found, counts = np.unique(story.ids[rows], return_counts=True)
    return int(found[counts.argmax()]) if 2 * counts.max() > counts.sum() else -1


def count_found(world: World, story: Story) -> tuple[int, int]:
    """Return how many of the planted births and deaths were found."""
    last, early = world.week == N_WEEKS - 1, world.week < APPEARS
    n_births = 0
    for one in world.born:
        name = _main_id(story, last & (world.classes == one))
        inside = world.classes[last & (story.ids == name)]
        is_own = name >= 0 and bool(2 * (inside == one).sum() > len(inside))
        n_births += int(is_own and name >= story.n_early)
    names = [_main_id(story, early & (world.classes == one)) for one in world.dead]
    return n_births, sum(name >= 0 and name not in story.alive for name in names)


def accuracy(world: World, story: Story) -> list[float]:
    """Return ACC of the rows of every week by the ids they have at last."""
    scores = []
    for week in range(N_WEEKS):
        rows = world.week == week
        _, ids = np.unique(story.ids[rows], return_inverse=True)
        classes = world.classes[rows]
        shared = count_shared(classes, ids.reshape(-1), int(classes.max()) + 1, int(ids.max()) + 1)
        scores.append(float(shared[match_counts(shared)].sum() / rows.sum()))
    return scores


def compare(
    name: str, world: World, ways: dict[str, Callable[[World], Story]], table: Table
) -> dict[str, tuple[float, float, int, int]]:
    """Print all ways, and return share of rows kept, ACC, births and deaths found."""
    found = {}
    for way, tell in ways.items():
        torch.set_num_threads(1)  # BERTopic, once it ran, leaves more, and they wait by spinning
        start = time.process_time()
        try:
            story = tell(world)
        except ImportError as error:
            print(f"{way} is left out: {error}")
            continue
        seconds = time.process_time() - start
        births, deaths = count_found(world, story)
        scores = accuracy(world, story)
        found[way] = float(np.mean(story.kept)), float(np.mean(scores)), births, deaths
        table.add(
            name,
            way,
            f"{np.mean(story.kept):.3f}",
            f"{births} of {len(world.born)}, {story.n_births} in all",
            f"{deaths} of {len(world.dead)}, {story.n_deaths} in all",
            f"{np.mean(scores):.3f}",
            " ".join(f"{score:.2f}" for score in scores),
            f"{seconds:.0f} s",
        )
    return found


def worlds(quick: bool) -> dict[str, World]:
    """Return the data sets that can be had."""
    if quick:
        rows, classes = make_blobs(6000, 8, centers=20, cluster_std=1.6, random_state=1)
        return {"blobs": plant(rows.astype(np.float32), classes)}
    return {name: world for name in SETS if (world := _load(name)) is not None}


def _load(name: str) -> World | None:
    try:
        return plant(*rows_of(name))
    except SystemExit:
        print(f"{name} is left out: its rows or its encoder are not here.")
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="planted blobs")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    ways: dict[str, Callable[[World], Story]] = {"update": follow, "fit anew, match": fit_anew}
    if not quick:  # UMAP compiles for a minute
        ways["BERTopic, merge_models"] = merge_topics
    columns = "data", "way", "ids kept", "births found", "deaths found", "ACC", "per week", "CPU"
    table, short = Table(*columns), []
    for name, world in worlds(quick).items():
        found = compare(name, world, ways, table)
        kept, score, births, deaths = found["update"]
        other_kept, other_score, other_births, _ = found["fit anew, match"]
        if kept < other_kept:
            short.append(
                f"{name}: {kept:.3f} of the ids are kept, {other_kept:.3f} by fitting anew"
            )
        if births < max(other_births, len(world.born) // 2):
            short.append(f"{name}: {births} of {len(world.born)} births are found")
        if 2 * deaths < len(world.dead):
            short.append(f"{name}: {deaths} of {len(world.dead)} deaths are found")
        if score < other_score - 0.03:
            short.append(f"{name}: ACC {score:.3f}, {other_score:.3f} by fitting anew")
    if not quick:
        keep("weeks", table)
    return verdict(short, "an update keeps more ids than fitting anew, and finds births and deaths")


if __name__ == "__main__":
    sys.exit(main())

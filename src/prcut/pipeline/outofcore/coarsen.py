"""Coarser levels of a graph in parts: every part cuts its own nodes into fragments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prcut.pipeline.outofcore.parts import Level, Part, Posts, cut_offers, joined
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder
from prcut.search.fragments import GROUP_SIZE, contract, find_groups


def coarsen(
    level: Level, folder: Folder, seed: int, engine: Engine, options: dict[str, Any]
) -> tuple[Level, Posts]:
    """Return the level whose nodes are the fragments of another's, and every node's fragment."""
    fragments = Posts(level, folder / "fragments", level.key)
    coarse = Level(folder, level.n_parts, level.key)
    if not coarse.is_whole:
        cut = partial(_cut_fragments, fragments, seed)
        engine.run("fragments", cut, level.n_parts, **options)
        make = partial(_contract_part, fragments, coarse)
        engine.run("contract", make, level.n_parts, **options)
        coarse.finish()
    return coarse, fragments


def _cut_fragments(
    fragments: Posts, seed: int, number: int, advance: Callable[[int], None]
) -> None:
    """Cut a part's own nodes into fragments, by the edges between them."""
    if not fragments.has(number):
        part = fragments.level.load(number)
        groups, n_own = np.empty(0, np.int64), part.n_own
        if n_own:
            links = part.graph.links[:n_own]
            rng = np.random.default_rng([seed, 8, number])
            groups = find_groups(links[:, :n_own], GROUP_SIZE, rng)
            groups = join_stranded(links, groups, GROUP_SIZE)
        fragments.post(number, part, groups.astype(np.int32))
    advance(int(fragments.level.map(number, "sizes").sum()))


def join_stranded(links: csr_array, groups: np.ndarray, most: int) -> np.ndarray:
    """Group up to ``most`` own nodes whose edges all lead outside, by the nearest outside node."""
    # one by one, they would be as many on every level
    alone = np.flatnonzero(np.diff(links[:, : len(groups)].indptr) == 0)
    links = links[alone].tocoo()
    heaviest = np.lexsort((-links.data, links.row))
    heaviest = heaviest[np.unique(links.row[heaviest], return_index=True)[1]]
    heaviest = heaviest[np.argsort(links.col[heaviest], kind="stable")]
    alone, nearest = alone[links.row[heaviest]], links.col[heaviest]
    starts = (np.arange(len(alone)) - np.searchsorted(nearest, nearest)) % most == 0
    joined = groups.copy()
    joined[alone] = groups[alone[starts]][np.cumsum(starts) - 1]
    return np.unique(joined, return_inverse=True)[1].reshape(-1)


def _contract_part(
    fragments: Posts, coarse: Level, number: int, advance: Callable[[int], None]
) -> None:
    """Add up the edges between fragments: a part has all edges of its own."""
    if not coarse.has(number):
        part, own = fragments.level.load(number), fragments.own(number)
        picked, outside = _number_outside(part, fragments.inbox(number, part.sources))
        n_own = int(own.max(initial=-1)) + 1
        made = _between(part, np.concatenate([own, n_own + outside]), n_own, picked)
        offered = np.repeat(part.cuts[:, 0], part.cuts[:, 2] - part.cuts[:, 1])
        offers, cuts = cut_offers(offered, own[part.offers])
        made = made._replace(offers=offers, cuts=cuts)
        coarse.save(number, made)
        coarse.save_picked(number, picked.astype(np.int32))
    advance(int(fragments.level.map(number, "sizes").sum()))


def _number_outside(part: Part, inbox: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where each outside fragment will be posted, and the fragment of each outside node.

    A part posts its fragments in ascending order, as it offers them.
    """
    places, n_before = [], 0
    for posted in inbox:
        distinct, place = np.unique(posted, return_inverse=True)
        places.append(n_before + place.reshape(-1))
        n_before += len(distinct)
    picked, outside = np.unique(joined(places)[part.picked], return_inverse=True)
    return picked, outside.reshape(-1)


def _between(part: Part, groups: np.ndarray, n_own: int, picked: np.ndarray) -> Part:
    graph = part.graph
    if not n_own:
        return part
    found = contract(graph.links, groups, sizes=graph.sizes)
    arrays = {"sizes": found.sizes[:n_own], "offers": part.offers, "cuts": part.cuts}
    return Part.of(found.links, n_own, **arrays, sources=part.sources, picked=picked)

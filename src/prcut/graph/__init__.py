"""From rows of features to a similarity graph."""

from prcut.graph.neighbors import Neighbors, find_neighbors
from prcut.graph.saved import load_graph, save_graph
from prcut.graph.smoothing import graph_features

__all__ = ["Neighbors", "find_neighbors", "graph_features", "load_graph", "save_graph"]

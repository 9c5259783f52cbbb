"""From rows of features to a similarity graph."""

from prcut.graph.build import graph_features
from prcut.graph.neighbors import Neighbors, find_neighbors
from prcut.graph.similarity_graph import load_graph, save_graph

__all__ = ["Neighbors", "find_neighbors", "graph_features", "load_graph", "save_graph"]

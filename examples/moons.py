"""Two moons: clusters that are not round.

k-means halves each moon, since it can only draw straight lines between centres. The graph runs
along the moons. The colours behind the rows are what a model says of places where there are none.

    python examples/moons.py
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from prcut import PRCut


def main() -> None:
    rows, moon = make_moons(400, noise=0.06, random_state=0)
    models = {
        "KMeans": KMeans(n_clusters=2, n_init=10, random_state=0),
        "PRCut": PRCut(n_clusters=2, n_neighbors=10, random_state=0),
    }
    grid_x, grid_y = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1, 1.5, 75))
    places = np.stack([grid_x, grid_y], axis=-1).reshape(-1, 2)
    figure, panels = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axes, (name, model) in zip(panels, models.items(), strict=True):
        labels = model.fit_predict(rows)
        region = model.predict(places).reshape(grid_x.shape)
        axes.contourf(grid_x, grid_y, region, levels=1, alpha=0.2, cmap="coolwarm")
        axes.scatter(*rows.T, c=labels, s=8, cmap="coolwarm")
        axes.set_title(name)
        axes.set_aspect("equal")
        print(f"{name}: agreement with the moons (ARI) {adjusted_rand_score(moon, labels):.2f}")
    figure.savefig("moons.svg")


if __name__ == "__main__":
    main()

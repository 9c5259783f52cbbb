"""Handwritten digits: what the clusters look like.

Ten clusters of the 1,797 small images of scikit-learn, found from pixels without labels. Each row
of the picture shows the eight images that the model is surest of in one cluster and, at the end,
the two it is least sure of. The labels serve for one line at the end only.

    python examples/digits.py
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from prcut import PRCut


def main() -> None:
    digits = load_digits()
    pixels = digits.data[:, digits.data.std(0) > 0]  # some are black in every image
    model = PRCut(n_clusters=10, random_state=0).fit(pixels)
    probs = model.predict_proba(pixels)

    figure, panels = plt.subplots(10, 10, figsize=(6, 6))
    for cluster, row in enumerate(panels):
        members = np.flatnonzero(model.labels_ == cluster)
        members = members[np.argsort(-probs[members, cluster])]
        for axes, member in zip(row, [*members[:8], *members[-2:]], strict=True):
            axes.imshow(digits.images[member], cmap="gray_r")
            axes.set_axis_off()
    figure.savefig("clusters.svg")

    print("rows in each cluster:", np.bincount(model.labels_))
    print(f"neighbours {model.n_neighbors_}, balance weight {model.balance_weight_:.2f}")
    print(f"ratio cut {model.ratio_cut_:.2f}, {model.score(pixels):.0%} better than by chance")
    agreement = adjusted_rand_score(digits.target, model.labels_)
    print(f"agreement with the labels (ARI) {agreement:.2f}")


if __name__ == "__main__":
    main()

"""A stream that drifts, followed without labels.

Four groups wander while their rows arrive, 500 at a time. One model is fitted to the first rows
and left alone, one continues with partial_fit. Their scores need no labels.

    python examples/stream.py
"""

import copy

import matplotlib.pyplot as plt
import numpy as np

from prcut import PRCut

N_PARTS = 12


def main() -> None:
    rng = np.random.default_rng(0)
    centers, drift = 3 * rng.normal(size=(4, 8)), rng.normal(size=(4, 8))

    def arrive(part: int) -> np.ndarray:
        middle = centers + 0.7 * part * drift
        return middle[rng.integers(4, size=500)] + rng.normal(size=(500, 8))

    left_alone = PRCut(n_clusters=4, n_neighbors=10, learning_rate=0.01, random_state=0)
    left_alone.fit(arrive(0))
    following = copy.deepcopy(left_alone)
    scores = []
    for part in range(1, N_PARTS):
        rows = arrive(part)
        scores.append((left_alone.score(rows), following.score(rows)))  # before it learns them
        following.partial_fit(rows)
        print(f"part {part:>2}: left alone {scores[-1][0]:.2f}, following {scores[-1][1]:.2f}")

    figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
    axes.plot(range(1, N_PARTS), scores, marker="o", label=["left alone", "following"])
    axes.set_xlabel("part of the stream")
    axes.set_ylabel("score, without labels")
    axes.legend()
    figure.savefig("stream.svg")


if __name__ == "__main__":
    main()

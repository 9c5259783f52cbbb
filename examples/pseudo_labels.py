"""Pseudo-labels from the ratio cut while an encoder is trained: the paper's drop-in use.

An encoder learns, without labels, to predict from a damaged image which cluster the whole image
belongs to, as speech and text transformers are pre-trained on k-means units. Here the units are not
fixed beforehand: an assigner on the encoder's own output clusters neighbours as training goes.

    python examples/pseudo_labels.py
"""

import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from prcut import Assigner, RatioCutLoss, build_graph
from prcut.training import WalkPairs


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some pixels are black in every image
        pairs = WalkPairs(build_graph(images, n_neighbors=10), n_steps=4)

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    assigner = Assigner(32, 20, generator=generator)  # gives the pseudo-labels
    student = nn.Linear(32, 20)  # guesses them from damaged images
    ratio_cut = RatioCutLoss(n_clusters=20)
    parameters = [*encoder.parameters(), *assigner.parameters(), *student.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=5e-3)

    before = probe(encoder, images, digits.target)
    losses = []
    for step in range(800):
        batch = pairs.draw(512, generator)
        rows = images[batch.rows]
        probs = assigner.probs(encoder(rows))
        ends = torch.stack([batch.source, batch.target])
        cut = ratio_cut(probs, ends, batch.weight, batch.node_weight)

        damaged = rows * (torch.rand(rows.shape, generator=generator) < 0.5)
        pseudo_labels = probs.detach().argmax(1)
        guess = nn.functional.cross_entropy(student(encoder(damaged)), pseudo_labels)

        optimizer.zero_grad()
        (cut + guess).backward()
        optimizer.step()
        losses.append((float(cut), float(guess)))
        if step % 200 == 199:
            print(f"step {step + 1}: ratio cut loss {cut:.2f}, cross-entropy {guess:.2f}")
    after = probe(encoder, images, digits.target)
    print(f"linear probe with 50 labels: {before:.3f} before, {after:.3f} after pre-training")

    figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    titles = "ratio cut loss", "cross-entropy of the pseudo-labels"
    for axes, title, curve in zip(panels, titles, zip(*losses, strict=True), strict=True):
        axes.plot(curve, lw=0.8)
        axes.set(title=title, xlabel="step")
    figure.savefig("losses.svg")


@torch.no_grad()
def probe(encoder: nn.Module, images: torch.Tensor, labels: list[int]) -> float:
    """Accuracy of a linear classifier of the representation, trained on 50 labels."""
    representation = encoder(images).numpy()
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    classifier.fit(representation[:50], labels[:50])
    return float(classifier.score(representation[50:], labels[50:]))


if __name__ == "__main__":
    main()

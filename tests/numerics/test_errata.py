"""Each error of the paper that docs/researchers.md lists, shown by numbers.

The functions are numbered like the page. Small dense arrays in float64 stand for the paper's
formulas, so that these tests do not lean on the code they justify.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score
from torch import Tensor

import reference
from prcut import expected_ratio_cut, ratio_cut, soft_ratio_cut
from prcut.numerics.expectation import ratio_cut_upper_bound
from prcut.numerics.objective import carry_batch_gradient, soft_graph_ratio_cut
from prcut.training import RunningClusterMass


def problem(n_samples: int = 6, n_clusters: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Dense W and P."""
    weight = reference.random_graph(n_samples, seed).weight.to_dense()
    return weight, reference.random_probs(n_samples, n_clusters, seed)


def split(p: Tensor) -> Tensor:
    """p_i + p_j − 2 p_i p_j for all i, j."""
    return p[:, None] + p[None, :] - 2 * torch.outer(p, p)


def test_01_difference_form_is_twice_the_definition() -> None:
    graph = reference.random_graph(10)
    weight = graph.weight.to_dense()
    indicator = reference.one_hot(torch.arange(10) % 3, 3)
    scaled = indicator / indicator.sum(0).sqrt()
    laplacian = torch.diag(weight.sum(1)) - weight
    definition = ratio_cut(graph.weight, torch.arange(10) % 3)
    trace = (scaled.T @ laplacian @ scaled).trace()
    differences = sum(0.5 * (weight * (f[:, None] - f) ** 2).sum() for f in scaled.T)
    torch.testing.assert_close(differences, trace)
    torch.testing.assert_close(definition, 0.5 * trace)


def test_02_sum_form_is_twice_the_trace_form() -> None:
    weight, probs = problem()
    for p in probs.T:
        torch.testing.assert_close((weight * split(p)).sum(), 2 * p @ weight @ (1 - p))


def test_03_batch_gradient_has_no_outer_sum() -> None:
    weight, probs = problem()
    p = probs[:, 0].clone().requires_grad_()
    sum_form = (weight * split(p)).sum() / p.mean()
    (autograd,) = torch.autograd.grad(sum_form, p)
    mean, total = p.mean().detach(), (weight * split(p)).sum().detach()
    closed = 2 / mean * weight @ (1 - 2 * p.detach()) - total / (len(p) * mean**2)
    torch.testing.assert_close(autograd, closed)


def test_03_running_mass_through_autograd_is_the_batch_gradient() -> None:
    """Two batches, a dense block of W between them, a running p̄ that is not the batch's."""
    generator = torch.Generator().manual_seed(0)
    block = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    probs = reference.random_probs(9, 3).requires_grad_()
    running = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    mass = carry_batch_gradient(running, probs.mean(0))
    i, j = (
        part.flatten()
        for part in torch.meshgrid(torch.arange(4), torch.arange(4, 9), indexing="ij")
    )
    # twice soft_ratio_cut, which has the definition's ½, is the paper's sum form
    loss = 2 * soft_ratio_cut(block.flatten(), probs[i], probs[j], mass)
    (autograd,) = torch.autograd.grad(loss, probs)

    source, target = probs.detach()[:4], probs.detach()[4:]
    per_cluster = torch.stack(
        [
            (block * (s[:, None] + t - 2 * torch.outer(s, t))).sum()
            for s, t in zip(source.T, target.T, strict=True)
        ]
    )
    link = torch.cat([block @ (1 - 2 * target), block.T @ (1 - 2 * source)])
    torch.testing.assert_close(autograd, link / running - per_cluster / (9 * running**2))


def test_04_offline_gradient() -> None:
    graph = reference.random_graph(6)
    weight, probs = problem()
    mass = probs.mean(0)
    closed = weight @ (1 - 2 * probs) / mass - ((1 - probs) * (weight @ probs)).sum(0) / (
        6 * mass**2
    )
    probs.requires_grad_()
    (ours,) = torch.autograd.grad(soft_graph_ratio_cut(graph.weight, probs), probs)
    # ours: the definition's ½, and Σp = n p̄ in place of p̄
    torch.testing.assert_close(ours, closed / (2 * 6))


def test_05_quadrature_weights() -> None:
    for m in (2, 5, 9):
        legendre = np.polynomial.legendre.Legendre.basis(m)
        roots, weights = np.polynomial.legendre.leggauss(m)
        slope = legendre.deriv()(roots)
        np.testing.assert_allclose(2 / ((1 - roots**2) * slope**2), weights)
        assert not np.allclose(2 / ((1 - roots) ** 2 * slope**2), weights)


def test_05_half_of_m_nodes_suffice_and_one_fewer_does_not() -> None:
    probs = reference.random_probs(1, 8, sharpness=0.5)[0] * 5  # a polynomial of degree 8
    probs = probs.clamp(0, 1)
    exact = reference.pair_integral(torch.cat([torch.zeros(2, dtype=torch.float64), probs]), 0, 1)
    for n_nodes, is_exact in ((8 // 2 + 1, True), (8 // 2 - 1, False)):
        node, weight = np.polynomial.legendre.leggauss(n_nodes)
        value = sum(
            w / 2 * math.prod(1 - float(p) * (r + 1) / 2 for p in probs)
            for r, w in zip(node, weight, strict=True)
        )
        assert (abs(value / exact - 1) < 1e-13) == is_exact


def test_06_two_over_n_mean_bounds_the_integral_and_is_tight() -> None:
    largest = 0.0
    for seed in range(200):
        probs = reference.random_probs(6, 2, seed, sharpness=seed % 20)[:, 0]
        largest = max(largest, reference.pair_integral(probs, 0, 1) * float(probs.sum()))
    # both ends certain, all others absent: I = 1 and n p̄ = 2
    certain = torch.tensor([1.0, 1.0, 0, 0, 0, 0], dtype=torch.float64)
    assert largest <= 2
    assert reference.pair_integral(certain, 0, 1) * float(certain.sum()) == 2
    assert math.e**2 > 2


def test_06_without_a_constant_it_is_no_upper_bound() -> None:
    """Soft assignments have an expected ratio cut above the surrogate; the bound holds."""
    graph = reference.random_graph(6, density=1.0)
    probs = torch.full((6, 2), 0.5, dtype=torch.float64)
    exact = expected_ratio_cut(graph.weight, probs)
    torch.testing.assert_close(exact, reference.expectation(graph, probs).sum())
    assert soft_graph_ratio_cut(graph.weight, probs) < 0.9 * exact
    # equal probabilities attain the bound
    torch.testing.assert_close(ratio_cut_upper_bound(graph.weight, probs), exact)


def test_07_closed_form_of_the_integral() -> None:
    from scipy.integrate import quad
    from scipy.special import hyp2f1

    for alpha, m in itertools.product((1e-12, 0.1, 0.7, 1.0), (1, 4, 30)):
        with np.errstate(divide="ignore"):
            closed = -np.expm1((m + 1) * np.log1p(-alpha)) / ((m + 1) * alpha)
        assert closed == pytest.approx(quad(lambda t, a=alpha, m=m: (1 - a * t) ** m, 0, 1)[0])
        assert closed == pytest.approx(hyp2f1(-m, 1, 2, alpha))
    # what the paper's last step throws away is most of it for a small cluster
    assert 1 - (1 - 0.01) ** 11 < 0.11


@pytest.mark.costly("the integral of every pair, one by one")
def test_08_one_integrand_serves_all_pairs() -> None:
    graph = reference.random_graph(7)
    for sharpness in (0.3, 3.0, 30.0):
        probs = reference.random_probs(7, 3, sharpness=sharpness)
        enumerated = reference.expectation(graph, probs)
        ours = expected_ratio_cut(graph.weight, probs, reduction="none")
        torch.testing.assert_close(ours, enumerated, atol=1e-13, rtol=1e-10)
        # the paper's own form, an integral per pair (errata 1: its ½ counts each pair twice)
        weight = graph.weight.to_dense()
        per_pair = [
            0.5
            * sum(
                float(weight[i, j] * split(p)[i, j]) * reference.pair_integral(p, i, j)
                for i, j in itertools.combinations(range(7), 2)
            )
            for p in probs.T
        ]
        np.testing.assert_allclose(per_pair, enumerated, rtol=1e-10)


def test_09_corollary_starts_at_zero_and_runs_over_all_subsets() -> None:
    p = reference.random_probs(6, 2)[:, 0]
    expected = reference.pair_integral(torch.cat([torch.zeros(2, dtype=torch.float64), p]), 0, 1)
    terms = [
        sum(
            (-1) ** i / (1 + i) * math.prod(float(p[m]) for m in subset)
            for subset in itertools.combinations(range(6), i)
        )
        for i in range(7)
    ]
    assert sum(terms) == pytest.approx(expected, rel=1e-12)
    assert sum(terms[1:]) < 0 < expected  # as printed, from i = 1, an expectation below 0
    assert sum(math.comb(6, i) for i in range(7)) == 2**6 != math.factorial(6)


def test_10_the_weight_is_the_maximum_of_the_term() -> None:
    p = torch.linspace(0, 1, 21, dtype=torch.float64)
    term = split(p)
    assert term.max() == 1
    assert term.min() == 0
    assert term[0, 20] == 1
    assert term[0, 0] == 0


def test_11_batch_estimate_is_not_exact_for_hard_assignments() -> None:
    """Four rows of six in the cluster, batches of three: Jensen's gap stays."""
    p = torch.tensor([1.0, 1, 1, 1, 0, 0], dtype=torch.float64)
    exact = 1 / (1 + float(p.sum()))
    batches = [float(p[list(batch)].sum()) for batch in itertools.combinations(range(6), 3)]
    estimate = sum(1 / (1 + size * 6 / 3) for size in batches) / len(batches)
    assert estimate > 1.02 * exact


def test_12_decaying_rate_averages_the_whole_history() -> None:
    """β/t gives every step so far the same weight (β = 1); a constant rate follows."""
    running_mean, lagging = RunningClusterMass(2, update_rate=0.8), torch.full((2,), 0.5)
    before, after = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.1, 0.9]])
    for t in range(1, 201):
        batch = before if t <= 100 else after
        lagging = (1 - 1 / t) * lagging + batch[0] / t
        mass = running_mean(batch)
    assert abs(lagging[0] - 0.5) < 1e-3
    assert abs(mass[0] - 0.1) < 1e-3


@pytest.mark.parametrize(("n_clusters", "factor"), [(10, 1.002), (100, 1.025), (1000, 1.32)])
def test_12_a_batch_mean_is_too_noisy_to_divide_by(n_clusters: int, factor: float) -> None:
    """E[1/p̂] p̄ at 4096 rows, hard assignments into equal clusters, empty ones left out."""
    count = np.random.default_rng(0).binomial(4096, 1 / n_clusters, size=200_000)
    measured = float(np.mean(1 / count[count > 0]) * 4096 / n_clusters)
    assert measured == pytest.approx(factor, abs=0.01)


def test_13_divergence_is_to_the_uniform_vector() -> None:
    p = reference.random_probs(1, 5)[0]
    entropy = -(p * p.log()).sum()
    divergence = (p * (p / 0.2).log()).sum()
    torch.testing.assert_close(divergence, math.log(5) - entropy)


def test_14_column_sums_are_n_over_k() -> None:
    balanced = reference.one_hot(torch.arange(12) % 4, 4)
    assert balanced.sum(0).tolist() == [12 / 4] * 4


def test_14_the_constraint_excludes_singletons_not_the_trivial_partition() -> None:
    def f_dot_one(size: int) -> float:
        return size / math.sqrt(size)

    assert f_dot_one(1) == 1
    assert f_dot_one(12) != 1  # all rows in one cluster satisfy "≠ 1"


def test_15_nmi_is_normalised_by_the_larger_entropy() -> None:
    truth, found = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1]
    entropies = [mutual_info_score(x, x) for x in (truth, found)]
    nmi = normalized_mutual_info_score(truth, found, average_method="max")
    assert nmi == pytest.approx(mutual_info_score(truth, found) / max(entropies))
    assert nmi < normalized_mutual_info_score(truth, found)


def test_16_dense_objective_is_quadratic() -> None:
    """Multiplications of the dense form: P ↦ WP, then a sum; a cubic term appears nowhere."""
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for n_samples in (32, 64):
        weight, probs = problem(n_samples, 4)
        with FlopCounterMode(display=False) as counter:
            ((1 - probs) * (weight @ probs)).sum(0)
        counts.append(counter.get_total_flops())
    assert counts[0] == 2 * 32 * 32 * 4
    assert counts[1] == 4 * counts[0]


def test_scale_two_uniform_batches_meet_b_b_m_over_n_edges() -> None:
    rng = np.random.default_rng(0)
    n_samples, n_neighbors, batch = 20_000, 15, 1024
    offsets = np.arange(1, n_neighbors + 1)
    met = []
    for _ in range(20):
        source = rng.choice(n_samples, batch, replace=False)
        is_target = np.zeros(n_samples, bool)
        is_target[rng.choice(n_samples, batch, replace=False)] = True
        met.append(is_target[(source[:, None] + offsets) % n_samples].sum())
    assert np.mean(met) == pytest.approx(batch**2 * n_neighbors / n_samples, rel=0.05)


def test_scale_an_empty_cluster_costs_less_the_more_there_are() -> None:
    cost = {k: 100 * math.log(k / (k - 1)) for k in (10, 100)}
    assert cost[10] == pytest.approx(10.5, abs=0.05)
    assert cost[100] == pytest.approx(1.0, abs=0.01)
    # the loss without information, all probabilities 1/k, weights of mean 1, paper's sum form
    for k in (10, 100):
        probs = torch.full((50, k), 1 / k, dtype=torch.float64)
        weight = torch.full((50,), 1 / 50, dtype=torch.float64)
        loss = 2 * soft_ratio_cut(weight, probs, probs, probs.mean(0))
        assert float(loss) == pytest.approx(2 * (k - 1))

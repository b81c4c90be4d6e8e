"""Fish's direction: an inner run that leaves no trace."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from satisfice.errors import UserError
from satisfice.penalties import cross_entropy, fish_direction

Batches = list[tuple[Tensor, Tensor]]


def network(norm: bool = False) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    middle = [nn.BatchNorm1d(4)] if norm else [nn.Tanh()]
    return nn.Sequential(nn.Linear(3, 4), *middle).double(), nn.Linear(4, 2).double()


def data(domains: int = 3) -> Batches:
    generator = torch.Generator().manual_seed(2)
    return [
        (
            torch.randn(6, 3, generator=generator, dtype=torch.float64),
            torch.randint(2, (6,), generator=generator),
        )
        for _ in range(domains)
    ]


def direction(parts: tuple[nn.Module, nn.Module | None], batches: Batches, **kind: Any) -> Tensor:
    kind = {"loss": cross_entropy, "rate": 0.1, "seed": 5, "step": 1} | kind
    return fish_direction(*parts, batches, **kind)


def flat(parts: tuple[nn.Module, nn.Module]) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for part in parts for p in part.parameters()])


def gradient(parts: tuple[nn.Module, nn.Module], x: Tensor, y: Tensor) -> Tensor:
    parameters = [p for part in parts for p in part.parameters()]
    loss = functional.cross_entropy(parts[1](parts[0](x)), y)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])


@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_it_is_what_an_optimizer_does_domain_by_domain(inner: str) -> None:
    parts, batches = network(), data()
    value = direction(parts, batches, order="given", inner=inner)
    start, parameters = flat(parts), [p for part in parts for p in part.parameters()]
    kind = torch.optim.SGD if inner == "sgd" else torch.optim.Adam
    optimizer = kind(parameters, lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        functional.cross_entropy(parts[1](parts[0](x)), y).backward()
        optimizer.step()
    torch.testing.assert_close(value, (start - flat(parts)) / 0.1, rtol=1e-12, atol=1e-14)


def test_adams_state_is_kept_in_the_callers_dict() -> None:
    parts, batches = network(), data()
    state: dict[str, Any] = {}
    first = direction(parts, batches, inner="adam", state=state)
    second = direction(parts, batches, inner="adam", state=state)
    assert not torch.allclose(first, second)
    assert torch.equal(first, direction(parts, batches, inner="adam"))


def test_adams_state_does_not_bring_its_rate_along() -> None:
    parts, batches = network(), data()
    state: dict[str, Any] = {}
    direction(parts, batches, inner="adam", state=state, rate=0.1)
    slow = direction(parts, batches, inner="adam", state=copy.deepcopy(state), rate=1e-4)
    slower = direction(parts, batches, inner="adam", state=copy.deepcopy(state), rate=1e-5)
    torch.testing.assert_close(slow, slower, rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_rates_keep_their_digits(dtype: torch.dtype) -> None:
    parts = tuple(part.to(dtype) for part in network())
    batches = [(x.to(dtype), y) for x, y in data()]
    rough = direction((parts[0], parts[1]), batches, rate=1e-8)
    x, y = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    expected = 3 * gradient((parts[0], parts[1]), x, y).float()  # domains of equal size
    # Nothing moves at this rate, so q is the sum of gradients, as exact as the dtype makes them.
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    assert (rough - expected).norm() < tolerance * expected.norm()


def test_a_reduced_loss_is_refused() -> None:
    with pytest.raises(UserError, match="one value per example"):
        direction(network(), data(), loss=functional.cross_entropy)


@pytest.mark.parametrize("norm", [False, True])
def test_parameters_gradients_and_buffers_are_left_as_they_were(norm: bool) -> None:
    parts = network(norm)
    before = {k: v.clone() for part in parts for k, v in part.state_dict().items()}
    direction(parts, data())
    after = {k: v for part in parts for k, v in part.state_dict().items()}
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert all(p.grad is None for part in parts for p in part.parameters())


def test_on_average_it_is_the_gradients_sum_less_half_the_slope_of_their_products() -> None:
    parts, batches, rate = network(), data(), 1e-3
    parameters = [p for part in parts for p in part.parameters()]
    runs = [
        direction(parts, [batches[i] for i in order], order="given", rate=rate)
        for order in itertools.permutations(range(3))
    ]
    gradients = []
    for x, y in batches:
        loss = functional.cross_entropy(parts[1](parts[0](x)), y)
        made = torch.autograd.grad(loss, parameters, create_graph=True)
        gradients.append(torch.cat([g.reshape(-1) for g in made]))
    products = sum(a @ b for a, b in itertools.combinations(gradients, 2))
    assert isinstance(products, Tensor)
    slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(products, parameters)])
    total = torch.stack(gradients).sum(0).detach()
    found = (total - torch.stack(runs).mean(0)) / (rate / 2)
    assert (found - slope).norm() < 0.01 * slope.norm()  # the next order is rate times smaller


def test_the_order_is_fresh_every_step_and_follows_the_seed() -> None:
    parts, batches = network(), data(5)
    runs = [direction(parts, batches, step=step) for step in range(1, 6)]
    assert len({tuple(run.tolist()) for run in runs}) > 1
    assert torch.equal(runs[2], direction(parts, batches, step=3))
    given = direction(parts, batches, order="given")
    assert torch.equal(given, direction(parts, batches, order="given", step=9))


def test_global_random_state_is_untouched() -> None:
    parts, batches = network(), data()
    before = torch.get_rng_state()
    direction(parts, batches)
    assert torch.equal(torch.get_rng_state(), before)


def test_coordinates_are_the_trainable_parameters_a_tied_one_once() -> None:
    featurizer, classifier = nn.Linear(3, 3).double(), nn.Linear(3, 2).double()
    featurizer.bias.requires_grad_(False)
    tied = nn.Sequential(featurizer, nn.Tanh(), featurizer)
    value = direction((tied, classifier), data(), order="given")
    assert value.shape == (9 + 6 + 2,)
    assert value.abs().min() > 0


def test_a_whole_model_and_a_parameter_that_nothing_reaches() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2).double(), nn.Linear(1, 1).double()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, self.used(x)

    value = direction((Model(), None), data())
    assert value.shape == (10,)
    assert torch.equal(value[8:], torch.zeros(2, dtype=torch.float64))


def test_float32_unless_a_parameter_is_float64() -> None:
    featurizer, classifier = network()
    batches = [(x.float(), y) for x, y in data()]
    assert direction((featurizer.float(), classifier.float()), batches).dtype == torch.float32


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"inner": "sdg"}, "did you mean 'sgd'"),
        ({"order": "random"}, "order='random'"),
        ({"rate": 0.0}, "rate=0.0 must be > 0"),
    ],
)
def test_wrong_options_are_refused(kind: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        direction(network(), data(), **kind)


def test_an_empty_batch_and_a_frozen_model_are_refused() -> None:
    with pytest.raises(UserError, match="at least one domain"):
        direction(network(), [])
    featurizer, classifier = network()
    with pytest.raises(UserError, match="no parameter"):
        direction((featurizer.requires_grad_(False), classifier.requires_grad_(False)), data())

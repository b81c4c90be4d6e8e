"""Rules against METHOD's float64 vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from satisfice import rules
from satisfice.rules import Gradients

CLOSE: dict[torch.dtype, dict[str, float]] = {
    torch.float64: {"rtol": 1e-10, "atol": 1e-10},
    # The masks divide by a variance and PCD by a norm: some ten roundings on values up to 5.
    torch.float32: {"rtol": 1e-5, "atol": 5e-6},
}


@pytest.fixture(params=CLOSE, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def close(value: Tensor, expected: list[float], dtype: torch.dtype) -> None:
    assert value.dtype == dtype
    torch.testing.assert_close(
        value.double(), torch.tensor(expected, dtype=torch.float64), **CLOSE[dtype]
    )


def call(rule: rules.Rule, gradients: Gradients) -> Tensor:
    return rule(gradients, segments=[0, gradients.size], progress=1.0, seed=0, step=1).update


def test_masks(golden: dict[str, Any], dtype: torch.dtype) -> None:
    for case in golden["masks"]:
        gradients = torch.tensor(case["gradients"], dtype=dtype)
        close(rules.and_mask(gradients, tau=case["tau"]), case["and_mask"], dtype)
        close(rules.sand_mask(gradients, tau=case["tau"], k=case["k"]), case["sand_mask"], dtype)


@pytest.mark.parametrize("known", [True, False])
def test_groupdro(golden: dict[str, Any], dtype: torch.dtype, known: bool) -> None:
    case = golden["groupdro"]
    rule = rules.GroupDRO(eta=case["eta"], domains=range(case["domains"]) if known else None)
    if not known:  # let every domain enter before the first loss moves a weight
        rule.weights(torch.arange(case["domains"]), torch.zeros(case["domains"]))
        rule.commit(torch.tensor(True))
    for batch in case["batches"]:
        gradients = Gradients(
            torch.tensor(batch["ids"]),
            torch.tensor(batch["losses"], dtype=dtype),
            torch.ones(len(batch["ids"])),
            domain=torch.tensor(batch["gradients"], dtype=dtype),
        )
        close(call(rule, gradients), batch["update"], dtype)
        weights = rule.state_dict()["weights"]
        expected = pytest.approx(batch["weights"], abs=CLOSE[dtype]["atol"])
        assert [weights[domain] for domain in range(case["domains"])] == expected


def test_bloop_and_pcd(golden: dict[str, Any], dtype: torch.dtype) -> None:
    case = golden["rivals"]
    bloop, pcd = rules.Bloop(), rules.PCD(strength=case["pcd_tau"])
    for step, (g, q) in enumerate(
        zip(case["risk_gradients"], case["penalty_gradients"], strict=True)
    ):
        one = torch.ones(1)
        gradients = Gradients(
            torch.zeros(1, dtype=torch.int64),
            one,
            one,
            risk=torch.tensor(g, dtype=dtype),
            penalty=torch.tensor(q, dtype=dtype),
        )
        close(call(bloop, gradients), case["bloop"][step], dtype)
        close(call(pcd, gradients), case["pcd"][step], dtype)


def test_bound(golden: dict[str, Any], dtype: torch.dtype) -> None:
    for case in golden["bound"]:
        g = torch.tensor(case["risk_gradient"], dtype=dtype)
        expected = torch.tensor(case["expected"], dtype=dtype)
        value = rules.bounded(
            torch.tensor(case["update"], dtype=dtype),
            g,
            deviation=(expected - g).double().square().sum(),
            distance=case["distance"],
        )
        close(value, case["bounded"], dtype)

"""GroupDRO's weights: who enters, who keeps, what is refused."""

from __future__ import annotations

import pytest
import torch

from satisfice.errors import UserError
from satisfice.rules import Gradients, GroupDRO

YES = torch.tensor(True)


def move(rule: GroupDRO, ids: list[int], losses: list[float]) -> list[float]:
    weights: list[float] = rule.weights(torch.tensor(ids), torch.tensor(losses)).tolist()
    rule.commit(YES)
    return weights


def known(rule: GroupDRO) -> dict[int, float]:
    weights: dict[int, float] = rule.state_dict()["weights"]
    return weights


def test_new_domains_enter_with_a_fair_share_while_the_known_shrink() -> None:
    rule = GroupDRO(eta=0.0)
    move(rule, [4, 9], [1.0, 2.0])
    assert known(rule) == pytest.approx({4: 1 / 2, 9: 1 / 2})
    move(rule, [7], [1.0])
    assert known(rule) == pytest.approx({4: 1 / 3, 9: 1 / 3, 7: 1 / 3})


def test_several_at_once_enter_as_they_would_one_by_one() -> None:
    at_once, one_by_one = GroupDRO(eta=0.3), GroupDRO(eta=0.3)
    for rule in (at_once, one_by_one):
        move(rule, [0, 1], [2.0, 0.5])
    k, uneven = 2, known(one_by_one)
    for new in (2, 3):
        uneven = {d: w * k / (k + 1) for d, w in uneven.items()} | {new: 1 / (k + 1)}
        k += 1
    assert at_once._with_new([2, 3], torch.device("cpu"))[1].tolist() == pytest.approx(
        list(uneven.values())
    )


def test_absent_domains_keep_their_weight_and_all_sum_to_one() -> None:
    rule = GroupDRO(eta=1.0, domains=[0, 1, 2])
    shares = move(rule, [0, 2], [3.0, 0.0])
    weights = known(rule)
    assert weights[1] == pytest.approx(1 / 3)
    assert weights[0] > weights[2]
    assert sum(weights.values()) == pytest.approx(1)
    assert sum(shares) == pytest.approx(1)


def test_large_losses_do_not_overflow() -> None:
    assert move(GroupDRO(eta=1.0), [0, 1], [1e30, 0.0]) == [1.0, 0.0]


def test_a_weight_that_has_vanished_can_come_back() -> None:
    rule = GroupDRO(eta=1.0)
    move(rule, [0, 1], [1e30, 0.0])
    assert move(rule, [1], [1.0]) == [1.0]
    assert sum(known(rule).values()) == pytest.approx(1)


def test_an_infinite_loss_moves_no_weight_even_where_gradients_are_finite() -> None:
    rule = GroupDRO(eta=1.0, domains=[0, 1])
    batch = Gradients(
        torch.arange(2), torch.tensor([torch.inf, 1.0]), torch.ones(2), domain=torch.ones(2, 3)
    )
    result = rule(batch, segments=[0, 3], progress=1.0, seed=0, step=1)
    assert not bool(result.statistics["finite"])
    assert known(rule) == {0: 0.5, 1: 0.5}


def test_a_domain_named_twice_is_refused() -> None:
    with pytest.raises(UserError, match="once"):
        move(GroupDRO(), [1, 1], [1.0, 2.0])


def test_a_domain_that_was_not_named_is_refused() -> None:
    with pytest.raises(UserError, match=r"domain 5 is not among domains=\[0, 1\]"):
        move(GroupDRO(domains=[0, 1]), [0, 5], [1.0, 1.0])
    with pytest.raises(UserError, match="names no domain"):
        GroupDRO(domains=[])


def test_a_state_of_other_domains_is_refused() -> None:
    rule = GroupDRO(domains=[0, 1])
    with pytest.raises(UserError, match=r"the state knows domains \[3\]"):
        rule.load_state_dict({"weights": {3: 1.0}})


def test_a_non_finite_first_batch_lets_nobody_enter() -> None:
    rule = GroupDRO()
    rule.weights(torch.tensor([0, 1]), torch.tensor([torch.inf, 1.0]))
    rule.commit(torch.tensor(False))
    assert known(rule) == {}


def test_state_survives_json_where_keys_are_strings() -> None:
    rule, restored = GroupDRO(), GroupDRO()
    move(rule, [0, 1], [1.0, 2.0])
    restored.load_state_dict({"weights": {str(k): v for k, v in known(rule).items()}})
    assert known(restored) == known(rule)


@pytest.mark.parametrize("eta", [-0.1, float("inf"), float("nan")])
def test_eta_is_finite_and_not_negative(eta: float) -> None:
    with pytest.raises(UserError, match="eta"):
        GroupDRO(eta=eta)

"""Method names: what they mean, what is refused, and how users' own join."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from satisfice import penalties, registry, rules
from satisfice.errors import UserError

PENALTIES = ["coral", "mmd", "irm", "vrex", "fish"]
RULES = ["sdg", "and-mask", "sand-mask", "groupdro", "bloop", "pcd"]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register names that the others never see."""
    monkeypatch.setattr(registry, "_PENALTIES", dict(registry._PENALTIES))
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_penalty_works_with_every_rule(penalty: str, rule: str) -> None:
    built = registry.build(f"{penalty}+{rule}", strength=2.0)
    assert built.method.penalty is not None
    assert built.method.penalty.name == penalty
    assert built.rule.strength == 2.0


@pytest.mark.parametrize("penalty", ["coral", "mmd", "irm", "vrex"])
def test_a_penalty_alone_is_the_sum(penalty: str) -> None:
    assert isinstance(registry.build(penalty).rule, rules.Joint)
    assert registry.parse(f"{penalty}+joint").name == penalty


def test_fish_alone_is_no_rule_but_its_sum_is() -> None:
    assert registry.parse("fish").rule is None
    with pytest.raises(UserError, match=r"which only a whole step can run; 'fish\+joint' is"):
        registry.build("fish")
    assert isinstance(registry.build("fish+joint", rate=0.1).rule, rules.Joint)


def test_the_list_explains_each_name_and_each_can_be_built() -> None:
    listed = registry.methods()
    assert set(listed) == {
        *("erm", "groupdro", "and-mask", "sand-mask", "sdg", "joint", "bloop", "pcd"),
        *PENALTIES,
        *(f"{penalty}+{rule}" for penalty in PENALTIES for rule in RULES),
        "fish+joint",
    }
    for name, line in listed.items():
        assert line
        assert registry.parse(name).name == name
        if name != "fish":
            assert registry.build(name).method.name == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("corall+sdg", r"did you mean 'coral\+sdg'"),
        ("CORAL+SDG", r"did you mean 'coral\+sdg'"),
        ("coral-sdg", r"did you mean 'coral\+sdg'"),
        ("coral+", r"did you mean 'coral'"),
        ("", "there are 'erm'"),
        ("coral+erm", "erm takes no penalty; 'coral' is the sum"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest_right_ones(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        registry.parse(name)


@pytest.mark.parametrize("name", ["erm", "groupdro", "and-mask", "sand-mask"])
def test_a_strength_without_a_penalty_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="has no penalty to multiply"):
        registry.build(name, strength=1.0)


@pytest.mark.parametrize("name", ["sdg", "joint", "bloop", "pcd"])
def test_a_rule_for_a_penalty_of_ones_own_takes_a_strength(name: str) -> None:
    built = registry.build(name, strength=3.0)
    assert built.rule.strength == 3.0


def test_default_strengths_are_the_rules_own() -> None:
    strengths = {}
    for name in ("coral+sdg", "coral", "coral+pcd"):
        rule = registry.build(name).rule
        strengths[name] = rule.strength
    assert strengths == {"coral+sdg": 1.0, "coral": 1.0, "coral+pcd": 0.02}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("coral+sdg", {"candidate": "flip"}, "did you mean 'candidates'"),
        ("coral+sdg", {"tau": 0.5}, "'tau' is not an option of 'coral\\+sdg': there are"),
        ("erm", {"eta": 0.1}, "'eta' is not an option of 'erm': it has no options"),
        ("groupdro", {"etta": 0.1}, "did you mean 'eta'"),
    ],
)
def test_unknown_options_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        registry.build(name, **options)


def test_options_find_their_rule_and_their_penalty() -> None:
    built = registry.build("irm+sdg", iterations=None, loss=penalties.cross_entropy)
    assert isinstance(built.rule, rules.SDG)
    assert built.rule.iterations is None
    assert built.options == {"loss": penalties.cross_entropy}


@pytest.mark.usefixtures("own")
def test_a_users_penalty_and_rule_join() -> None:
    def spread(features: Tensor) -> Tensor:
        """The features' variance."""
        return features.var()

    class Half(rules.Joint):
        """Half of the sum."""

    registry.register_penalty("spread", spread, takes=("features",), line="features vary little")
    registry.register_rule("half", Half, line="half of the sum")
    for name in ("spread", "spread+sdg", "spread+half", "coral+half", "half"):
        assert name in registry.methods()
        assert registry.build(name, strength=2.0).method.name == name
    penalty = registry.parse("spread+half").penalty
    assert penalty is not None
    assert penalty.function(torch.tensor([[0.0], [2.0]])) == 2.0


@pytest.mark.usefixtures("own")
def test_ones_own_may_be_registered_again_but_not_as_the_other_kind() -> None:
    for line in ("first", "second"):
        registry.register_rule("mine", rules.Joint, line=line)
    assert registry.methods()["mine"] == "second"
    with pytest.raises(UserError, match="is taken"):
        registry.register_penalty("mine", penalties.vrex, takes=("losses",), line="mine")


@pytest.mark.usefixtures("own")
def test_a_rule_that_takes_a_penalty_takes_a_strength() -> None:
    with pytest.raises(UserError, match="must take the keyword 'strength'"):
        registry.register_rule("mine", rules.Mean, line="mine")
    registry.register_rule("mine", rules.Mean, line="mine", takes_penalty=False, alone=True)
    assert isinstance(registry.build("mine").rule, rules.Mean)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "words"),
    [("coral", "is taken"), ("a+b", "without"), ("Mine", "lower case"), ("", "lower case")],
)
def test_a_bad_name_for_ones_own_is_refused(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        registry.register_rule(name, rules.Joint, line="mine")
    with pytest.raises(UserError, match=words):
        registry.register_penalty(name, penalties.vrex, takes=("losses",), line="mine")


@pytest.mark.usefixtures("own")
def test_a_penalty_that_takes_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'features'"):
        registry.register_penalty("mine", penalties.vrex, takes=("feature",), line="mine")

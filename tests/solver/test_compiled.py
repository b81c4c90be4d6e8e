"""``torch.compile`` of the reference: its launcher at once, and what it compiles when time allows.

The launcher is tested with the function that would be compiled, run as it is; compiling one takes
some 16 s.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from solver.reference import DTYPES, SOLVERS, Pass, assert_agrees, passes, run, same, some_pass

from satisfice.solver import CANDIDATES, DRAWS, compiled, uniform_range
from satisfice.solver.philox import uniform_words

needs_compiler = pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None, reason="no C++ compiler"
)


@pytest.fixture(scope="module")
def eager() -> Iterator[list[dict[str, Any]]]:
    """Run what would be compiled; the options that each was to be compiled with."""
    asked: list[dict[str, Any]] = []

    def as_it_is(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        asked.append(options)
        return function

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", as_it_is)
        compiled._whole.cache_clear()
        yield asked
    compiled._whole.cache_clear()


def compare(case: Pass) -> None:
    found, expected = run(case, backend="compile"), run(case, backend="reference")
    assert assert_agrees(case, found, expected).flips == 0
    same(found[0], expected[0])


@pytest.mark.usefixtures("eager")
@settings(max_examples=60)
@given(passes())
def test_the_launcher_is_the_reference(case: Pass) -> None:
    compare(case)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 2**34 - 5, 2**40 + 1])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 130])
def test_draws_are_counted_from_the_offset(size: int, offset: int) -> None:
    compare(some_pass(3, size, offset=offset))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**38))
def test_words_of_a_counter_tensor_are_the_range(seed: int, step: int, quad: int) -> None:
    mask = 0xFFFFFFFF
    counter = torch.tensor([seed & mask, seed >> 32, step, quad & mask, quad >> 32])
    same(uniform_words(counter, 3), uniform_range(seed, step, 4 * quad, 12))


def test_nothing_is_compiled_twice_but_for_another_variant(eager: list[dict[str, Any]]) -> None:
    compiled._whole.cache_clear()
    eager.clear()
    for step in (1, 2, 3):
        for offset in (0, 4, 400):  # what counts is where in a block of four it starts
            run(some_pass(3, 100, step=step, offset=offset, beta=0.1 * step), backend="compile")
    assert len(eager) == 1
    assert eager == [{"dynamic": False, "fullgraph": True}]
    run(some_pass(3, 100, offset=1), backend="compile")
    run(some_pass(3, 100, offset=0, iterations=None), backend="compile")
    assert len(eager) == 3


@pytest.mark.usefixtures("eager")
def test_results_go_where_asked() -> None:
    case = some_pass(3, 100)
    out, gamma_out = torch.empty(200)[::2], torch.empty(100)
    found = run(case, backend="compile", out=out, gamma_out=gamma_out)
    assert found[0] is out
    assert found[1] is gamma_out
    for value, expected in zip(found, run(case, backend="compile"), strict=True):
        same(value, expected)


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize(
    ("domains", "dtype", "kind", "iterations", "draw"),
    [
        (3, DTYPES[0], CANDIDATES[0], SOLVERS[0], DRAWS[0]),
        (4, DTYPES[1], CANDIDATES[1], SOLVERS[1], DRAWS[1]),
        (5, DTYPES[0], CANDIDATES[0], SOLVERS[1], DRAWS[0]),
    ],
)
def test_the_kernel_is_what_the_compiled_reference_is(
    domains: int, dtype: torch.dtype, kind: str, iterations: int | None, draw: str
) -> None:
    compiled._whole.cache_clear()
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    for seed in range(5):
        case = some_pass(domains, 2111, dtype, seed=seed, **options)
        found, expected = run(case, backend="numba"), run(case, backend="compile")
        assert assert_agrees(case, found, expected).flips == 0
        assert assert_agrees(case, expected, run(case, backend="reference")).flips == 0
    compiled._whole.cache_clear()

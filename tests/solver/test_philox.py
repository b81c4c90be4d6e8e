from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satisfice.solver import philox4x32, uniform, uniform_range
from satisfice.solver.philox import uniform_words

FULL = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((FULL,) * 4, (FULL,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: tuple[int, int, int, int],
    key: tuple[int, int],
    expected: tuple[int, int, int, int],
    device: str,
) -> None:
    c0, c1, c2, c3 = (torch.tensor([word], dtype=torch.int64, device=device) for word in counter)
    assert tuple(word.item() for word in philox4x32((c0, c1, c2, c3), key)) == expected


def test_golden_draws(golden: dict[str, Any], device: str) -> None:
    for vector in golden["draws"]:
        coordinate = torch.tensor([vector["coordinate"]], device=device)
        u = uniform(vector["seed"], vector["step"], coordinate, stream=vector["stream"])
        assert u.item() == vector["uniform"]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**32 - 1),
    st.one_of(st.integers(0, 100), st.integers(2**34 - 100, 2**34 + 100), st.just(2**60 + 1)),
    st.integers(0, 50),
    st.integers(0, 1),
)
def test_a_range_is_its_coordinates(
    seed: int, step: int, start: int, length: int, stream: int
) -> None:
    single = uniform(seed, step, torch.arange(start, start + length), stream=stream)
    together = uniform_range(seed, step, start, length, stream=stream)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, single, rtol=0, atol=0)


def test_coordinates_keep_their_shape() -> None:
    coordinates = torch.arange(24)
    flat = uniform(3, 1, coordinates)
    torch.testing.assert_close(uniform(3, 1, coordinates.view(2, 3, 4)), flat.view(2, 3, 4))
    assert uniform(3, 1, coordinates[5]).item() == flat[5].item()


def test_every_value_is_a_multiple_of_2_to_the_minus_24_below_1() -> None:
    u = uniform_range(1, 1, 0, 100_000).double()
    assert u.min() >= 0
    assert u.max() < 1
    scaled = u * 2**24
    torch.testing.assert_close(scaled, scaled.round(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("seed", "step", "start", "stream"),
    [
        (1, 5, 0, 0),
        (2**32, 5, 0, 0),
        (0, 6, 0, 0),
        (0, 5, 4000, 0),
        (0, 5, 2**34, 0),
        (0, 5, 0, 1),
    ],
)
def test_another_seed_step_coordinate_or_stream_is_another_draw(
    seed: int, step: int, start: int, stream: int
) -> None:
    here = uniform_range(0, 5, 0, 1000)
    there = uniform_range(seed, step, start, 1000, stream=stream)
    assert (here == there).sum() <= 1  # two of 2^24 values agree by chance once in 16,000 draws
    correlation = torch.corrcoef(torch.stack([here, there]))[0, 1]
    assert correlation.abs() < 5 / 1000**0.5


def test_draws_are_uniform() -> None:
    count, bins = 2**20, 256
    u = uniform_range(20221128, 1, 0, count)
    observed = torch.histc(u, bins, 0, 1)
    chi_squared = ((observed - count / bins) ** 2 / (count / bins)).sum().item()
    # Its mean is bins − 1 and its variance twice that.
    assert abs(chi_squared - (bins - 1)) < 4 * (2 * (bins - 1)) ** 0.5
    neighbours = torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1]
    assert neighbours.abs() < 4 / count**0.5


def test_the_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    uniform_range(1, 2, 3, 4)
    uniform(1, 2, torch.arange(4))
    torch.testing.assert_close(torch.get_rng_state(), before, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_any_integer_names_a_coordinate(dtype: torch.dtype) -> None:
    coordinates = torch.arange(100)
    assert torch.equal(uniform(3, 4, coordinates.to(dtype)), uniform(3, 4, coordinates))


@pytest.mark.parametrize(
    ("seed", "step", "words"),
    [(-1, 1, "seed=-1"), (2**64, 1, "seed="), (0, -1, "step=-1"), (0, 2**32, "step=")],
)
def test_what_does_not_fit_the_counter_is_refused(seed: int, step: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        uniform(seed, step, torch.arange(4))
    with pytest.raises(ValueError, match=words):
        uniform_range(seed, step, 0, 4)


def test_words_from_a_counter_on_the_device_are_the_same(device: str) -> None:
    seed, step, start = 2**64 - 3, 2**32 - 1, 4 * (2**32 + 7)
    first = start // 4
    counter = [seed & 0xFFFFFFFF, seed >> 32, step, first & 0xFFFFFFFF, first >> 32]
    found = uniform_words(torch.tensor(counter, device=device), 5)
    assert torch.equal(found.cpu(), uniform_range(seed, step, start, 20))

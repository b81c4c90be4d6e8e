"""Record p at 50 digits for log-odds shifts that rounding finds hard.

``python tests/hostile/record.py`` writes ``probabilities.npz`` beside itself, in seconds. For
each number of domains E it holds ``shifts_E`` [E, N] in float32, so that one reference serves every
dtype, and in float64 ``iterated_E`` [N], p after 25 iterations, and ``limit_E`` [N], their limit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpmath import exp, expm1, mp, mpf

DOMAINS = {1: 30, 2: 50, 3: 50, 4: 50, 5: 30, 6: 20, 7: 20, 8: 30, 12: 20, 16: 20, 32: 20, 64: 10}
"""How many cases of each kind are recorded for each number of domains."""
ITERATIONS = 25
DIGITS = 50
EDGES = (1e-12, 1e-7, 3.4e-4, 1, 15.9, 16.7, 36.7, 87.3, 88.8, 103.9, 104.1, 709.7, 745.2, 1e3, 1e4)
"""Around where e^Δ or e^(−Δ) meets 1, overflows, or underflows in float32 or float64."""

Rng = np.random.Generator
Kind = Callable[[Rng, int], np.ndarray]


def _magnitude(rng: Rng, count: int | None = None, low: float = -12, high: float = 4) -> np.ndarray:
    return 10 ** rng.uniform(low, high, count)


def _signs(rng: Rng, count: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], count)


def _pairs(rng: Rng, values: np.ndarray, count: int) -> np.ndarray:
    """Each of ``values`` and its negative, shuffled; an odd number of domains has a zero too."""
    values = values.astype(np.float32)
    return rng.permutation(np.concatenate([values, -values, np.zeros(count % 2)]))


def one_scale(rng: Rng, count: int) -> np.ndarray:
    return rng.standard_normal(count) * _magnitude(rng, high=3.5)


def mixed_scales(rng: Rng, count: int) -> np.ndarray:
    return _signs(rng, count) * _magnitude(rng, count)


def cancelling(rng: Rng, count: int) -> np.ndarray:
    return _pairs(rng, rng.uniform(0.1, 1, count // 2) * _magnitude(rng), count)


def cancelling_mixed(rng: Rng, count: int) -> np.ndarray:
    return _pairs(rng, _magnitude(rng, count // 2), count)


def almost_cancelling(rng: Rng, count: int) -> np.ndarray:
    """Pairs of which one is off by its last digit, so that the sum is."""
    shifts = _pairs(rng, rng.uniform(0.1, 1, count // 2) * _magnitude(rng), count)
    shifts = shifts.astype(np.float32)
    shifts[0] = np.nextafter(shifts[0], np.float32(rng.choice([-np.inf, np.inf])))
    return np.where(np.abs(shifts) < 1e-12, 0, shifts)


def zero_sum(rng: Rng, count: int) -> np.ndarray:
    """Small integers times a power of two, the last one being minus the sum of the others."""
    first = rng.integers(-(2**12), 2**12, count - 1)
    return np.append(first, -first.sum()) * 2.0 ** rng.integers(-40, -6)


def second_order(rng: Rng, count: int) -> np.ndarray:
    """A mean of the order of the mean square, which is what puts the limit inside (0, 1)."""
    shifts = rng.standard_normal(count) * _magnitude(rng, low=-6, high=0.5)
    return shifts - shifts.mean() + rng.uniform(-0.6, 0.6) * (shifts**2).mean()


def some_zeros(rng: Rng, count: int) -> np.ndarray:
    return one_scale(rng, count) * rng.integers(0, 2, count)


def repeated(rng: Rng, count: int) -> np.ndarray:
    """Two values, so that many domains agree exactly."""
    return rng.choice(rng.standard_normal(2) * _magnitude(rng, high=3.5), count)


def edges(rng: Rng, count: int) -> np.ndarray:
    return _signs(rng, count) * rng.choice(EDGES, count)


def lone_dissenter(rng: Rng, count: int) -> np.ndarray:
    """One domain against all others, which are far weaker or far stronger."""
    shifts = rng.uniform(0.5, 1, count) * _magnitude(rng, high=2)
    shifts[0] = -_magnitude(rng)
    return shifts * rng.choice([-1, 1])


def heavy_tails(rng: Rng, count: int) -> np.ndarray:
    return rng.standard_normal(count) ** 5 * _magnitude(rng, low=-1, high=1)


def uneven_camps(rng: Rng, count: int) -> np.ndarray:
    """Domains for and against whose strengths differ by orders of magnitude."""
    shifts = rng.exponential(size=count) * _magnitude(rng, low=0, high=2)
    against = rng.integers(0, count)
    shifts[:against] *= -_magnitude(rng, low=-4, high=-2)
    return shifts * rng.choice([-1, 1])


KINDS: tuple[Kind, ...] = (
    one_scale,
    mixed_scales,
    cancelling,
    cancelling_mixed,
    almost_cancelling,
    zero_sum,
    second_order,
    some_zeros,
    repeated,
    edges,
    lone_dissenter,
    heavy_tails,
    uneven_camps,
)


def iterated(shifts: list[float]) -> float:
    """p after 25 iterations of p ← (1/E) Σ p/(p + (1−p)·e^(−Δ)) from 1/2."""
    p = mpf(1) / 2
    odds = [exp(-mpf(shift)) for shift in shifts]
    for _ in range(ITERATIONS):
        p = p * sum(1 / (p + (1 - p) * a) for a in odds) / len(odds)
    return float(p)


def limit(shifts: list[float]) -> float:
    """The maximiser of Σ log(p + (1−p)·e^(−Δ)) on [0, 1], by bisection of its slope."""
    if not any(shifts):
        return 0.5
    if sum(expm1(-mpf(shift)) for shift in shifts) <= 0:
        return 1.0
    if sum(expm1(mpf(shift)) for shift in shifts) <= 0:
        return 0.0
    # Σ u/(p + (1−p)a) with u = 1 − a, in which a large a divides out.
    terms = [(-expm1(-mpf(shift)), exp(-mpf(shift))) for shift in shifts if shift]
    low, high = mpf(0), mpf(1)
    for _ in range(64):
        middle = (low + high) / 2
        slope = sum(u / (a + middle * u) for u, a in terms)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float((low + high) / 2)


def record(path: Path) -> None:
    mp.dps = DIGITS
    rng = np.random.default_rng(20221128)
    arrays: dict[str, np.ndarray] = {}
    for domains, each in DOMAINS.items():
        columns = [kind(rng, domains) for kind in KINDS for _ in range(each)]
        shifts = np.clip(np.stack([*columns, np.zeros(domains)], axis=1), -1e4, 1e4)
        shifts = shifts.astype(np.float32)
        cases = shifts.astype(np.float64).T.tolist()
        arrays[f"shifts_{domains}"] = shifts
        arrays[f"iterated_{domains}"] = np.array([iterated(case) for case in cases])
        arrays[f"limit_{domains}"] = np.array([limit(case) for case in cases])
        print(f"E = {domains}: {len(cases)} cases")
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    record(Path(__file__).with_name("probabilities.npz"))

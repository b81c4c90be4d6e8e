"""p from shifts, one block at a time, for the fused kernel: see ascent and exact.

Each function takes the scratch ``work``, whose rows ``fused_cpu`` lays out: p in row 3, spare rows
from 4, and from row ``TERMS`` two for every domain, which hold Δ and become v and b.

Loops are short on purpose: a compiler gives up on vectorising a loop over many arrays. They load
before they choose, so that a choice is no branch; and where a NaN comes in, it stays.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["INNER", "TERMS", "make_iterations", "make_limit"]

TERMS = 14
INNER: dict[str, Any] = {
    "error_model": "numpy",  # x/0 is infinite, and no branch
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # nothing is allocated, so nothing is counted
}
_NEWTON_STEPS = 12
# 1e-6 is asked of p, so products may be fused with sums. No other liberty is taken.
_fused = numba.njit(fastmath={"contract"}, **INNER)


def _terms(dtype: type[np.floating[Any]]) -> Any:
    """v and b of a shift: see ascent.slope_terms."""
    single = dtype is np.float32
    integer = np.int32 if single else np.int64
    zero, half, one = dtype(0), dtype(0.5), dtype(1)
    bias, mantissa = integer(127 if single else 1023), integer(23 if single else 52)
    most = dtype(87 if single else 708)  # exp(−most) is still a normal number
    per_log2 = dtype(1 / math.log(2))
    # ln 2 in two parts, the first short enough for its multiples to be exact.
    high = dtype(0.693359375 if single else 0.6931471803691238)
    low = dtype(-2.12194440e-4 if single else 1.9082149292705877e-10)
    c = [dtype(1 / math.factorial(k)) for k in range(14)]
    c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = c[2:]

    @_fused
    def tail(r):
        """(e^r − 1 − r)/r² for |r| ≤ ln(2)/2."""
        if single:
            return c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * c7))))
        high_part = c8 + r * (c9 + r * (c10 + r * (c11 + r * (c12 + r * c13))))
        return c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * (c7 + r * high_part)))))

    @_fused
    def terms(v, b, small, power, n):
        """Turn the shifts in v into v and b, and give e^(−|Δ|)."""
        scale = power.view(dtype)
        series = b  # free until the end
        for i in range(n):
            x = abs(v[i])
            x = most if x > most else x
            x = x if x == x else zero
            k = np.floor(half - x * per_log2)
            r = (-x - k * high) - k * low
            series[i] = r + r * r * tail(r)
            power[i] = (integer(k) + bias) << mantissa
        for i in range(n):
            x, s = v[i], scale[i]
            u = (one - s) - s * series[i]
            a = s + s * series[i]
            small[i] = a
            u = u if x > zero else -u
            v[i] = u if x == x else x
            b[i] = a if x > zero else one

    return terms


def make_iterations(dtype: type[np.floating[Any]]) -> Any:
    """25 iterations: see ascent.iterate."""
    terms = _terms(dtype)
    half, zero, one = dtype(0.5), dtype(0), dtype(1)

    # Three functions, because the compiler vectorises short ones.

    @_fused
    def two(work, n, iterations, share):
        p, v0, b0, v1, b1 = work[3], work[TERMS], work[TERMS + 1], work[TERMS + 2], work[TERMS + 3]
        for _ in range(iterations):
            for i in range(n):
                x = p[i]
                d0, d1 = b0[i] + x * v0[i], b1[i] + x * v1[i]
                p[i] = x + x * (one - x) * ((v0[i] * d1 + v1[i] * d0) / (d0 * d1) * share)

    @_fused
    def four(work, n, iterations, share):
        p, v0, b0, v1, b1 = work[3], work[TERMS], work[TERMS + 1], work[TERMS + 2], work[TERMS + 3]
        v2, b2, v3, b3 = work[TERMS + 4], work[TERMS + 5], work[TERMS + 6], work[TERMS + 7]
        for _ in range(iterations):
            for i in range(n):
                x = p[i]
                d0, d1 = b0[i] + x * v0[i], b1[i] + x * v1[i]
                d2, d3 = b2[i] + x * v2[i], b3[i] + x * v3[i]
                d01, d23 = d0 * d1, d2 * d3
                top = (v0[i] * d1 + v1[i] * d0) * d23 + (v2[i] * d3 + v3[i] * d2) * d01
                p[i] = x + x * (one - x) * (top / (d01 * d23) * share)

    @_fused
    def many(work, n, domains, iterations, share):
        p, slope = work[3], work[4]
        fours, rest = (domains + 1) // 4, (domains + 1) % 4
        for _ in range(iterations):
            for i in range(n):
                slope[i] = zero
            for k in range(fours):
                e = TERMS + 8 * k
                v0, v1, v2, v3 = work[e], work[e + 2], work[e + 4], work[e + 6]
                b0, b1, b2, b3 = work[e + 1], work[e + 3], work[e + 5], work[e + 7]
                for i in range(n):
                    x = p[i]
                    d0, d1 = b0[i] + x * v0[i], b1[i] + x * v1[i]
                    d2, d3 = b2[i] + x * v2[i], b3[i] + x * v3[i]
                    d01, d23 = d0 * d1, d2 * d3
                    top = (v0[i] * d1 + v1[i] * d0) * d23 + (v2[i] * d3 + v3[i] * d2) * d01
                    slope[i] += top / (d01 * d23)
            if rest > 1:
                e = TERMS + 8 * fours
                v0, b0, v1, b1 = work[e], work[e + 1], work[e + 2], work[e + 3]
                for i in range(n):
                    x = p[i]
                    d0, d1 = b0[i] + x * v0[i], b1[i] + x * v1[i]
                    slope[i] += (v0[i] * d1 + v1[i] * d0) / (d0 * d1)
            for i in range(n):
                p[i] += p[i] * (one - p[i]) * (slope[i] * share)

    @_fused
    def iterate(work, power, n, domains, iterations):
        """p ← p + p(1−p)·f'(p)/E, with one division for four domains.

        No product of four denominators is small: each is at least about 1/E, since p cannot come
        near an end that a domain forbids.
        """
        for e in range(domains):
            terms(work[TERMS + 2 * e], work[TERMS + 2 * e + 1], work[5], power, n)
        p, share = work[3], one / dtype(domains)
        for i in range(n):
            p[i] = half
        if domains < 3:
            two(work, n, iterations, share)
        elif domains < 5:
            four(work, n, iterations, share)
        else:
            many(work, n, domains, iterations, share)

    return iterate


def make_limit(dtype: type[np.floating[Any]]) -> Any:
    """The exact limit: see exact.exact_limit. Three domains take Newton's method, as more do."""
    terms = _terms(dtype)
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    near = dtype(np.finfo(dtype).eps ** 0.5)
    still = dtype(1e-5 if dtype is np.float32 else 1e-9)  # Newton squares what is left

    @_fused
    def ends(v, small, one_end, zero_end, n):
        """Add one domain's expm1(−Δ) and expm1(Δ)."""
        for i in range(n):
            u = v[i]
            large = u / small[i]
            one_end[i] -= u if u > zero else large
            zero_end[i] += u if u < zero else large

    @_fused
    def first_order(work, largest, first, squares, n, domains):
        """p where all shifts are tiny: ½ + ΣΔ/ΣΔ², clipped."""
        for i in range(n):
            first[i], squares[i] = zero, zero
        for e in range(domains):
            shift = work[TERMS + 2 * e]
            for i in range(n):
                scale = largest[i]
                u = shift[i] / (scale if scale > zero else one)
                first[i] += u
                squares[i] += u * u
        for i in range(n):
            scale, total = largest[i], squares[i]
            x = half + first[i] / (total if total > zero else one) / (
                scale if scale > zero else one
            )
            x = zero if x < zero else x
            first[i] = one if x > one else x

    @_fused
    def limit(work, power, n, domains, iterations):  # noqa: ARG001 - iterate's signature
        """The exact limit: the ends, the first order where shifts are tiny, else Newton's method.

        Loops are short because a compiler gives up on loops over many arrays.
        """
        p, above, below, above2, below2 = work[3], work[4], work[5], work[6], work[7]
        low, high, largest, first = work[8], work[9], work[10], work[11]
        state, t = work[12], work[13]
        for i in range(n):
            largest[i], above[i], below[i] = zero, zero, zero
        for e in range(domains):
            shift = work[TERMS + 2 * e]
            for i in range(n):
                x, most_yet = abs(shift[i]), largest[i]
                largest[i] = x if x > most_yet else most_yet
        few = 0
        for i in range(n):
            few += 1 if largest[i] < near else 0
        if few > 0:
            first_order(work, largest, first, t, n, domains)
        for e in range(domains):
            v, b = work[TERMS + 2 * e], work[TERMS + 2 * e + 1]
            terms(v, b, t, power, n)
            ends(v, t, above, below, n)
        for i in range(n):
            x, y = above[i], below[i]
            end = two if x <= zero else half  # 2: p = 1; −1: p = 0; ½: between; −2: tiny shifts
            end = -one if y <= zero and not x <= zero else end
            state[i] = -two if largest[i] < near else end
        for i in range(n):
            p[i], low[i], high[i] = half, zero, one
        for _ in range(0 if domains == 2 else _NEWTON_STEPS):
            for i in range(n):
                above[i], below[i], above2[i], below2[i] = zero, zero, zero, zero
            for e in range(domains):
                top, floor = work[TERMS + 2 * e], work[TERMS + 2 * e + 1]
                for i in range(n):
                    t[i] = top[i] / (floor[i] + p[i] * top[i])
                for i in range(n):  # written so that a NaN stays one
                    x = zero if t[i] < zero else t[i]
                    above[i] += x
                    above2[i] += x * x
                for i in range(n):
                    x = zero if t[i] > zero else -t[i]
                    below[i] += x
                    below2[i] += x * x
            for i in range(n):
                x, y = above[i], below[i]
                above[i] = one / x - one / y
                below[i] = above2[i] / (x * x) + below2[i] / (y * y)
            for i in range(n):
                x, value, lo, hi = p[i], above[i], low[i], high[i]
                low[i] = x if value <= zero else lo
                high[i] = x if value >= zero else hi
            moving = 0
            for i in range(n):
                x, lo, hi = p[i], low[i], high[i]
                y = x - above[i] / below[i]
                middle = half * (lo + hi)
                outside = zero if y < lo and lo == zero and x > zero else middle
                outside = one if y > hi and hi == one and x < one else outside
                y = outside if y < lo or y > hi else y
                moving += 1 if abs(y - x) > still and state[i] == half else 0
                p[i] = y
            if moving == 0:
                break
        if domains == 2:  # f' ∝ 1/(p + b/v) + 1/(p + b'/v')
            v0, b0, v1, b1 = work[TERMS], work[TERMS + 1], work[TERMS + 2], work[TERMS + 3]
            for i in range(n):
                p[i] = -half * (b0[i] / v0[i] + b1[i] / v1[i])
        for i in range(n):
            x, end = p[i], state[i]
            x = one if end == two else x
            p[i] = zero if end == -one else x
        if few > 0:
            for i in range(n):
                x, y = p[i], first[i]
                p[i] = y if state[i] == -two else x

    return limit

"""The rule's whole pass over [E, P] in one loop over cache-sized blocks, in Numba.

It computes what ``reference`` computes. Candidates, costs and γ are equal to the bit: their sums
run in the order of the domains, and nothing is contracted. p is reached by other instructions (a
polynomial for exp, one division for four domains) and agrees to rounding: a drawn update is equal
to the bit where p falls on the same side of the draw, an expected one to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from satisfice.solver import threads
from satisfice.solver.fused_probability import INNER, TERMS, make_iterations, make_limit
from satisfice.solver.kernel_cache import keep_on_disk
from satisfice.solver.passes import Pass

__all__ = ["fused_cpu"]

_CHUNK = 1024  # coordinates whose sums are added apart, so that no sum depends on the threads
_CACHE_BYTES = 128 << 10  # a share of L2: longer loops gain more than L1 would
_PADDING = 16  # values: rows a power of two apart would share their place in the cache
_LARGEST_BLOCK = 1024

_exact = numba.njit(**INNER)  # rounds as the reference does
# Sums of squares may be added in any order; infinities and NaN stay what they are.
_sum = numba.njit(fastmath={"reassoc", "contract", "nsz"}, **INNER)


def fused_cpu(given: Pass) -> tuple[Tensor, Tensor]:
    """Run the fused kernel.

    Rows of the gradients may lie apart; whatever else is not contiguous is copied.
    """
    gradients = given.gradients
    domains, size = gradients.shape
    if size and gradients.stride(1) != 1:
        gradients = gradients.contiguous()
    stride = gradients.stride(0) if domains > 1 and size else size
    flat = gradients.as_strided(((domains - 1) * stride + size,), (1,))
    sums = torch.zeros((-(-size // _CHUNK), 2), dtype=torch.float64)
    real = np.float32 if gradients.dtype == torch.float32 else np.float64
    kernel = _compiled(real, given.iterations is None)
    written = [t.contiguous() for t in (given.out, given.gamma_out)]
    read = [t.contiguous() for t in (flat, given.penalty_gradient, given.gamma)]
    arrays = [t.numpy() for t in (*read, *written, sums)]
    beta, rate = real(float(given.beta)), real(float(given.rate))
    spare = _spare(domains, real)

    def work(first: int, last: int) -> None:
        try:
            scratch = spare.pop()
        except IndexError:
            scratch = _scratch(domains, real)
        kernel(
            arrays[0], stride, domains, *arrays[1:], first, last, beta, rate,
            given.candidates == "flip", given.iterations or 0, given.draw == "sample",
            np.uint64(given.seed), given.step, given.offset, *scratch,
        )  # fmt: skip
        spare.append(scratch)

    threads.share(work, len(sums))
    for target, result in zip((given.out, given.gamma_out), written, strict=True):
        if target is not result:
            target.copy_(result)
    deviation, norm = sums.sum(0).unbind()
    return deviation, norm


@cache
def _spare(domains: int, real: type[np.floating[Any]]) -> list[Any]:
    """Return the scratch that no thread is using: a list's pop and append are atomic."""
    del domains, real
    return []


def _scratch(domains: int, real: type[np.floating[Any]]) -> tuple[Any, Any, Any]:
    """Make one thread's scratch: rows of one block each, integers, and uniform numbers.

    The rows are plus, minus, mean, p, ten spare ones, then v and b of every domain in turn; an odd
    number of domains gets one more, whose terms v = 0 and b = 1 add nothing.
    """
    rows = TERMS + 2 * (domains + (domains & 1))
    item = np.dtype(real).itemsize
    block = 64
    while block < _LARGEST_BLOCK and 2 * block * rows * item <= _CACHE_BYTES:
        block *= 2
    work = np.zeros((rows, block + _PADDING), real)
    work[TERMS + 1 :: 2] = 1
    power = np.empty(block, np.int32 if item == 4 else np.int64)
    return work, power, np.zeros(block + 8, np.float32)


@cache
def _compiled(real: type[np.floating[Any]], exact: bool) -> Callable[..., None]:
    """Return the compiled kernel; its first call compiles it, or reads it from disk."""
    options = {**INNER, "no_cpython_wrapper": False, "nogil": True}
    dispatcher: Any = numba.njit(**options)(_make_kernel(real, exact))
    name = f"{np.dtype(real).name}-{'exact' if exact else 'iterations'}"
    keep_on_disk(dispatcher, name, (__file__, make_limit.__code__.co_filename))
    dispatcher.compile(_signature(real))
    dispatcher.disable_compile()
    return dispatcher  # type: ignore[no-any-return]


def _signature(real: type[np.floating[Any]]) -> Any:
    types = numba.types
    number = numba.from_dtype(np.dtype(real))
    row = types.Array(number, 1, "C")
    integer = types.int32 if number is types.float32 else types.int64
    return types.void(
        row, types.int64, types.int64, row, row, row, row, types.Array(types.float64, 2, "C"),
        types.int64, types.int64, number, number, types.boolean, types.int64, types.boolean,
        types.uint64, types.int64, types.int64,
        types.Array(number, 2, "C"), types.Array(integer, 1, "C"),
        types.Array(types.float32, 1, "C"),
    )  # fmt: skip


def _make_kernel(real: type[np.floating[Any]], exact: bool) -> Callable[..., None]:
    """Return the function to compile, for the chunks first … last − 1.

    It writes ‖E[G] − g‖² and ‖g‖² of each chunk into ``sums``.
    """
    shape_costs, shape_shifts = _costs(real)
    solve = make_limit(real) if exact else make_iterations(real)
    choose, add_squares = _choice(real)
    uniforms = _uniforms()

    def fused(
        gradients, stride, domains, q, gamma, out, gamma_out, sums, first, last, beta, rate, flip,
        iterations, sample, seed, step, offset, work, power, u,
    ):  # fmt: skip
        size, block = len(out), len(power)
        plus, minus, mean, p, spare = work[0], work[1], work[2], work[3], work[4]
        for chunk in range(first, last):
            deviation, norm = 0.0, 0.0
            stop = min(size, (chunk + 1) * _CHUNK)
            for start in range(chunk * _CHUNK, stop, block):
                n = min(block, stop - start)
                q_, new = q[start : start + n], gamma_out[start : start + n]
                shape_costs(
                    gradients, stride, domains, start, n, q_, gamma[start : start + n], new,
                    plus, minus, mean, spare, beta, rate, flip,
                )  # fmt: skip
                for e in range(domains):
                    row = gradients[e * stride + start : e * stride + start + n]
                    shape_shifts(row, q_, new, plus, minus, work[TERMS + 2 * e], beta, n)
                solve(work, power, n, domains, iterations)
                if sample:
                    uniforms(seed, step, offset + start, n, u)
                choose(
                    plus, minus, mean, p, new, u[(offset + start) & 3 :],
                    out[start : start + n], spare, n, sample,
                )  # fmt: skip
                deviation += add_squares(spare, n)
                norm += add_squares(mean, n)
            sums[chunk, 0], sums[chunk, 1] = deviation, norm

    return fused


def _costs(dtype: type[np.floating[Any]]) -> tuple[Any, Any]:
    """Candidates, costs, γ and shifts, as the reference rounds them."""
    zero, one, two = dtype(0), dtype(1), dtype(2)
    tiny = np.finfo(dtype).tiny

    @_exact
    def shape_costs(
        gradients, stride, domains, start, n, q, gamma, new, plus, minus, mean, total, beta, rate,
        flip,
    ):  # fmt: skip
        count = dtype(domains)
        for i in range(n):
            plus[i], minus[i], total[i] = zero, zero, zero
        for e in range(domains):
            row = gradients[e * stride + start : e * stride + start + n]
            if flip:
                for i in range(n):
                    plus[i] += row[i]
            else:
                for i in range(n):  # written so that a NaN stays one
                    g = row[i]
                    plus[i] += zero if g < zero else g
                    minus[i] += zero if g > zero else g
        for i in range(n):
            plus[i], minus[i] = plus[i] / count, minus[i] / count
            mean[i] = plus[i] + minus[i]
        if flip:
            for i in range(n):
                minus[i] = -plus[i]
        for e in range(domains):
            row = gradients[e * stride + start : e * stride + start + n]
            for i in range(n):
                up, down = plus[i] - row[i], minus[i] - row[i]
                total[i] += abs(beta * (up * up) - q[i] * plus[i])
                total[i] += abs(beta * (down * down) - q[i] * minus[i])
        for i in range(n):
            new[i] = gamma[i] + (total[i] / (two * count) - gamma[i]) * rate

    @_exact
    def shape_shifts(row, q, new, plus, minus, shift, beta, n):
        for i in range(n):
            a, b = plus[i], minus[i]
            value = (a - b) * (beta * (two * row[i] - a - b) + q[i])
            c = new[i]
            dead = c < tiny
            value = value / (one if dead else c) + (c - c)
            shift[i] = zero if dead else value

    return shape_costs, shape_shifts


def _uniforms() -> Any:
    """Philox4x32-10: four coordinates to a counter. Unrolled, so that it is vectorised."""
    mask, low = np.uint64(0xFFFFFFFF), np.uint64(32)
    m0, m1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    k0, k1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
    byte, unit = np.uint64(8), np.float32(2.0**-24)

    @_exact
    def turn(c0, c1, c2, c3, a, b):
        left, right = c0 * m0, c2 * m1
        return (right >> low) ^ c1 ^ a, right & mask, (left >> low) ^ c3 ^ b, left & mask

    @_exact
    def uniforms(seed, step, start, n, u):
        """Fill u so that coordinate start + i is at u[start % 4 + i]."""
        quads = ((start & 3) + n + 3) >> 2
        first, second = np.uint64(start >> 2), np.uint64(step) & mask
        a0, b0 = seed & mask, seed >> low
        a1, b1 = (a0 + k0) & mask, (b0 + k1) & mask
        a2, b2 = (a1 + k0) & mask, (b1 + k1) & mask
        a3, b3 = (a2 + k0) & mask, (b2 + k1) & mask
        a4, b4 = (a3 + k0) & mask, (b3 + k1) & mask
        a5, b5 = (a4 + k0) & mask, (b4 + k1) & mask
        a6, b6 = (a5 + k0) & mask, (b5 + k1) & mask
        a7, b7 = (a6 + k0) & mask, (b6 + k1) & mask
        a8, b8 = (a7 + k0) & mask, (b7 + k1) & mask
        a9, b9 = (a8 + k0) & mask, (b8 + k1) & mask
        for i in range(quads):
            index = first + np.uint64(i)
            c0, c1, c2, c3 = turn(index & mask, index >> low, second, np.uint64(0), a0, b0)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a1, b1)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a2, b2)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a3, b3)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a4, b4)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a5, b5)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a6, b6)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a7, b7)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a8, b8)
            c0, c1, c2, c3 = turn(c0, c1, c2, c3, a9, b9)
            u[4 * i] = np.float32(np.int32(c0 >> byte)) * unit
            u[4 * i + 1] = np.float32(np.int32(c1 >> byte)) * unit
            u[4 * i + 2] = np.float32(np.int32(c2 >> byte)) * unit
            u[4 * i + 3] = np.float32(np.int32(c3 >> byte)) * unit

    return uniforms


def _choice(dtype: type[np.floating[Any]]) -> tuple[Any, Any]:
    """The update, and what its expectation differs from g by."""
    one = dtype(1)
    tiny = np.finfo(dtype).tiny

    @_exact
    def choose(plus, minus, mean, p, new, u, out, bias, n, sample):
        for i in range(n):
            m, expected = mean[i], p[i] * plus[i] + (one - p[i]) * minus[i]
            bias[i] = m if new[i] < tiny else expected
        if sample:
            for i in range(n):  # loads before the choice: a branch would be mispredicted
                a, b, m = plus[i], minus[i], mean[i]
                drawn = a if u[i] < p[i] else b
                out[i] = m if new[i] < tiny else drawn
        else:
            for i in range(n):
                out[i] = bias[i]
        for i in range(n):
            bias[i] -= mean[i]

    @_sum
    def add_squares(values, n):
        total = 0.0
        for i in range(n):
            total += np.float64(values[i]) * np.float64(values[i])
        return total

    return choose, add_squares

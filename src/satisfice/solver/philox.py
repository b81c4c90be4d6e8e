"""Counter-based draws: the same bits on every device, engine and rank."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.errors import in_range

__all__ = ["check_counter", "philox4x32", "uniform", "uniform_range", "uniform_words"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF

Word = int | Tensor


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Word, Word]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

    Parameters
    ----------
    counter
        Four int64 tensors that broadcast together, each holding 32-bit words.
    key
        Two 32-bit words.

    Returns
    -------
    Four int64 tensors of 32-bit words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # int64 products wrap, which leaves all 64 bits right; the masks drop the sign extension.
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((right >> 32) & _MASK) ^ c1 ^ k0,
            right & _MASK,
            ((left >> 32) & _MASK) ^ c3 ^ k1,
            left & _MASK,
        )
        k0, k1 = (k0 + _KEY_INCREMENTS[0]) & _MASK, (k1 + _KEY_INCREMENTS[1]) & _MASK
    return c0, c1, c2, c3


def _words(key: tuple[Word, Word], step: Word, block: Tensor, stream: Word) -> Tensor:
    """Return the four words of every ``block`` of four coordinates: ``[..., 4]``."""
    zero = torch.zeros_like(block)
    counter = (block & _MASK, (block >> 32) & _MASK, zero + step, zero + stream)
    return torch.stack(philox4x32(counter, key), -1)


def _to_unit(words: Tensor) -> Tensor:
    # 24 bits are what float32 holds exactly, so that every dtype compares the same number with p.
    return (words >> 8).to(torch.float32) * 2.0**-24


def check_counter(seed: int, step: int, stream: int = 0) -> None:
    """Refuse what does not fit the counter: 64 bits of seed, 32 of step and stream."""
    in_range("seed", seed, 0, 2**64 - 1)
    in_range("step", step, 0, _MASK)
    in_range("stream", stream, 0, _MASK)


def _key(seed: int) -> tuple[int, int]:
    return seed & _MASK, (seed >> 32) & _MASK


def uniform(seed: int, step: int, coordinates: Tensor, *, stream: int = 0) -> Tensor:
    """Draw one uniform number in [0, 1) for each coordinate, as a function of the arguments alone.

    The key is the 64-bit ``seed``; the counter is (i low, i high, step, stream) with
    i = coordinate // 4, and coordinate % 4 picks the word; u = (word >> 8)·2⁻²⁴.

    Parameters
    ----------
    seed
        64 bits.
    step
        The training step, from 1; 32 bits.
    coordinates
        Integer indices of any shape.
    stream
        0 for the update's draws, 1 for Fish's order of domains.

    Returns
    -------
    float32, of the shape of ``coordinates``; every value is exact in float32.
    """
    check_counter(seed, step, stream)
    coordinates = coordinates.long()
    words = _words(_key(seed), step, coordinates >> 2, stream)
    return _to_unit(words.gather(-1, (coordinates & 3).unsqueeze(-1)).squeeze(-1))


def uniform_range(
    seed: int,
    step: int,
    start: int,
    length: int,
    *,
    stream: int = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    """``uniform`` for the coordinates start, …, start + length − 1, at a quarter of its work."""
    check_counter(seed, step, stream)
    first, last = start >> 2, (start + length + 3) >> 2
    block = torch.arange(first, last, dtype=torch.int64, device=device)
    words = _words(_key(seed), step, block, stream).reshape(-1)
    return _to_unit(words[start - 4 * first :][:length])


def uniform_words(counter: Tensor, quads: int) -> Tensor:
    """``uniform_range`` for a counter on the device: 4·quads numbers from a multiple of four on.

    ``counter`` holds, as int64: seed low, seed high, step, and the first i low and high.
    """
    first = counter[3] + (counter[4] << 32)
    block = first + torch.arange(quads, dtype=torch.int64, device=counter.device)
    return _to_unit(_words((counter[0], counter[1]), counter[2], block, 0).reshape(-1))

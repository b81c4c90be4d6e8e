"""One step of SDG over all coordinates, by the fastest means at hand."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range, one_of
from satisfice.solver.candidates import CANDIDATES, widened
from satisfice.solver.passes import Pass
from satisfice.solver.philox import check_counter
from satisfice.solver.reference import reference_in_blocks
from satisfice.solver.two_candidates import check_iterations

__all__ = ["BACKENDS", "DRAWS", "choose_backend", "sdg_update"]

DRAWS = ("sample", "expectation")
BACKENDS = ("auto", "numba", "compile", "reference")


def sdg_update(
    gradients: Tensor,
    penalty_gradient: Tensor,
    gamma: Tensor,
    *,
    beta: float | Tensor,
    rate: float | Tensor,
    seed: int,
    step: int,
    offset: int = 0,
    candidates: str = "split",
    iterations: int | None = 25,
    draw: str = "sample",
    out: Tensor | None = None,
    gamma_out: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Choose one of two candidate updates for every coordinate.

    Parameters
    ----------
    gradients
        g_e, ``[E, P]``.
    penalty_gradient
        q = ∇(λ·Penalty), ``[P]``.
    gamma
        γ before this step, ``[P]`` or one number. It is not written to.
    beta
        β^t.
    rate
        How far γ moves to this step's cost m before the shifts are formed: γ ← γ + (m − γ)·rate.
    seed, step, offset
        They, with the coordinate's index counted from ``offset``, determine the draw.
    candidates, iterations
        As in ``solver.candidates`` and ``solver.probability``.
    draw
        ``"sample"``: G₊ with probability p, else G₋. ``"expectation"``: p·G₊ + (1−p)·G₋.
    out, gamma_out
        Where the update and the new γ are written, ``[P]``; new tensors if None. ``gamma_out`` may
        be ``gamma`` itself, but may not overlap it otherwise.
    backend
        ``"reference"``: plain PyTorch, in blocks that fit a cache. ``"numba"``: one fused kernel
        for the CPU. ``"compile"``: ``torch.compile`` of the reference. ``"auto"``: see
        ``choose_backend``.

    Returns
    -------
    update, gamma
        ``[P]``, in float32 or wider. A dead coordinate (γ below the smallest normal number) has
        the update g.
    deviation, norm
        ‖E[G] − g‖² and ‖g‖², float64 scalars.
    """
    one_of("candidates", candidates, CANDIDATES)
    one_of("draw", draw, DRAWS)
    check_iterations(iterations)
    check_counter(seed, step)
    if gradients.dim() != 2 or not len(gradients):
        raise UserError(
            f"gradients must have shape [E, P] with E >= 1, not {list(gradients.shape)}."
        )
    if penalty_gradient.shape != gradients.shape[1:]:
        raise UserError(
            f"penalty_gradient must have shape [{gradients.shape[1]}], one value for each "
            f"coordinate of gradients, not {list(penalty_gradient.shape)}."
        )
    in_range("offset", offset, 0, 2**63 - 1 - gradients.shape[1])
    for name, value in (("penalty_gradient", penalty_gradient), ("gamma", gamma)):
        if value.device != gradients.device:
            raise UserError(
                f"{name} is on {value.device}, gradients on {gradients.device}; move one of them."
            )
    gradients, q = widened(gradients.detach()), widened(penalty_gradient.detach())
    shape, dtype = q.shape, gradients.dtype
    if gamma.shape not in (shape, torch.Size([]), torch.Size([1])):
        raise UserError(
            f"gamma must have shape {list(shape)} or be one number, not {list(gamma.shape)}."
        )
    gamma = gamma.detach().to(dtype).expand(shape)
    beta, rate = _number("beta", beta), _number("rate", rate)
    update = _buffer("out", out, gradients)
    new_gamma = _buffer("gamma_out", gamma_out, gradients)
    if update.untyped_storage().data_ptr() == new_gamma.untyped_storage().data_ptr() and len(q):
        raise UserError("out and gamma_out must not share memory.")
    chosen = choose_backend(gradients.device, backend)
    if chosen == "numba":
        from satisfice.solver.fused_cpu import fused_cpu as run
    elif chosen == "compile":
        from satisfice.solver.compiled import compiled as run
    else:
        run = reference_in_blocks
    deviation, norm = run(
        Pass(
            gradients,
            q.to(dtype),
            gamma,
            beta=beta,
            rate=rate,
            seed=seed,
            step=step,
            offset=offset,
            candidates=candidates,
            iterations=iterations,
            draw=draw,
            out=update,
            gamma_out=new_gamma,
        )
    )
    return update, new_gamma, deviation, norm


def choose_backend(device: torch.device | str, backend: str = "auto") -> str:
    """Return which of ``"numba"``, ``"compile"`` and ``"reference"`` runs on ``device``.

    ``"auto"`` is Numba on the CPU, ``torch.compile`` on CUDA, and else the reference; without Numba
    it says once what to install. Any other choice is honoured or refused.
    """
    one_of("backend", backend, BACKENDS)
    kind = torch.device(device).type
    if backend == "numba":
        if kind != "cpu":
            raise UserError(f"backend='numba' runs on the CPU, not on {kind}; leave it out.")
        if not _has_numba():
            raise UserError("backend='numba' needs Numba: pip install 'satisfice[fast]'.")
    if backend != "auto":
        return backend
    if kind == "cuda":
        return "compile"
    if kind != "cpu":
        return "reference"
    if _has_numba():
        return "numba"
    _say_once()
    return "reference"


@cache
def _has_numba() -> bool:
    try:
        import numba  # noqa: F401 - it may be installed and refuse this version of NumPy
    except ImportError:
        return False
    return True


@cache
def _say_once() -> None:
    warnings.warn(
        "SDG's solver runs without Numba, many times slower: pip install 'satisfice[fast]'.",
        stacklevel=4,
    )


def _number(name: str, value: float | Tensor) -> float | Tensor:
    """Return one number, without a graph."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() != 1:
        raise UserError(f"{name} must be one number, not shape {list(value.shape)}.")
    return value.detach().reshape(())


def _buffer(name: str, given: Tensor | None, gradients: Tensor) -> Tensor:
    """Return where a result of P values is written."""
    shape = gradients.shape[1:]
    if given is None:
        return torch.empty(shape, dtype=gradients.dtype, device=gradients.device)
    if given.shape != shape or given.dtype != gradients.dtype or given.device != gradients.device:
        raise UserError(
            f"{name} must have shape {list(shape)}, {gradients.dtype} and {gradients.device}, not "
            f"{list(given.shape)}, {given.dtype} and {given.device}."
        )
    return given

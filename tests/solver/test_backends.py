"""Which path runs, what is refused, and that SDG takes the same step on every path."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from solver.reference import SOLVERS, Pass, assert_agrees, run, same, some_pass
from torch import Tensor

from satisfice.rules.gradients import Gradients
from satisfice.rules.sdg import SDG
from satisfice.solver import BACKENDS, SCOPES, choose_backend, compiled, fused_cpu, update

INSTALL = r"pip install 'satisfice\[fast\]'"


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the paths that ran; what is compiled is not, which takes 16 s."""
    ran: list[str] = []

    def spy(name: str, path: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            ran.append(name)
            return path(*arguments, **options)

        return watched

    reference = update.reference_in_blocks
    monkeypatch.setattr(fused_cpu, "fused_cpu", spy("numba", fused_cpu.fused_cpu))
    monkeypatch.setattr(compiled, "compiled", spy("compile", reference))
    monkeypatch.setattr(update, "reference_in_blocks", spy("reference", reference))
    return ran


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(update, "_has_numba", lambda: False)
    update._say_once.cache_clear()
    yield
    update._say_once.cache_clear()


# Which path ran


def test_on_the_cpu_numba_runs(paths: list[str]) -> None:
    case = some_pass()
    run(case)
    run(case, backend="auto")
    assert paths == ["numba", "numba"]


@pytest.mark.parametrize("backend", ["numba", "compile", "reference"])
def test_what_is_chosen_runs(backend: str, paths: list[str]) -> None:
    run(some_pass(), backend=backend)
    assert paths == [backend]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("iterations", [*SOLVERS, 3])
def test_numba_runs_for_every_dtype_and_solver(
    iterations: int | None, dtype: torch.dtype, paths: list[str]
) -> None:
    case = some_pass(iterations=iterations)
    run(
        case._replace(
            gradients=case.gradients.to(dtype), penalty_gradient=case.penalty_gradient.to(dtype)
        )
    )
    assert paths == ["numba"]


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_reference_runs_and_says_once_what_to_install(paths: list[str]) -> None:
    case = some_pass()
    with pytest.warns(UserWarning, match=f"without Numba.*{INSTALL}") as said:
        found = run(case)
    assert said[0].filename.endswith("reference.py")  # the caller's file: solver.reference.run
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(case)
        assert choose_backend("cpu") == "reference"
    assert paths == ["reference", "reference"]
    for value, expected in zip(found, run(case, backend="reference"), strict=True):
        same(value, expected)


@pytest.mark.usefixtures("without_numba")
def test_without_numba_an_explicit_choice_of_it_raises(paths: list[str]) -> None:
    with pytest.raises(ValueError, match=f"backend='numba' needs Numba: {INSTALL}"):
        run(some_pass(), backend="numba")
    assert paths == []


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("backend", ["compile", "reference"])
def test_without_numba_the_other_choices_are_silent(backend: str, paths: list[str]) -> None:
    run(some_pass(), backend=backend)
    assert paths == [backend]


@pytest.mark.parametrize(("device", "expected"), [("cpu", "numba"), ("cuda", "compile")])
def test_auto_by_device(device: str, expected: str) -> None:
    assert choose_backend(device) == expected
    assert choose_backend(torch.device(device)) == expected


@pytest.mark.parametrize("device", ["mps", "meta", "xpu"])
def test_auto_elsewhere_is_the_reference(device: str) -> None:
    assert choose_backend(device) == "reference"


@pytest.mark.parametrize("device", ["cuda", "mps", "meta"])
def test_numba_off_the_cpu_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=f"backend='numba' runs on the CPU, not on {device}"):
        choose_backend(device, "numba")


@pytest.mark.parametrize("backend", ["compile", "reference"])
def test_other_choices_are_honoured_on_every_device(backend: str) -> None:
    for device in ("cpu", "cuda", "mps"):
        assert choose_backend(device, backend) == backend


def test_an_unknown_backend_is_refused(paths: list[str]) -> None:
    with pytest.raises(ValueError, match=r"backend='numbas' is not known: did you mean 'numba'\?"):
        run(some_pass(), backend="numbas")
    with pytest.raises(ValueError, match="backend='triton' is not known"):
        choose_backend("cpu", "triton")
    assert paths == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["out", "gamma_out"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.empty(7), r"must have shape \[2100\], torch.float32 and cpu, not \[7\]"),
        (torch.empty(2100).double(), "not .* torch.float64 and cpu"),
        (torch.empty(2100, device="meta"), "not .* torch.float32 and meta"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused(
    given: Tensor, words: str, name: str, backend: str, paths: list[str]
) -> None:
    with pytest.raises(ValueError, match=f"{name} {words}" if "must" in words else words):
        run(some_pass(), backend=backend, **{name: given})
    assert paths == []


# What is imported


def fresh(script: str) -> str:
    """Run a script in a process of its own, warnings as errors; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_numba_is_imported_only_when_it_is_used() -> None:
    fresh(
        "import sys, torch, satisfice, satisfice.solver, satisfice.rules, satisfice.penalties\n"
        "from satisfice.solver import choose_backend, sdg_update\n"
        "loaded = lambda: {'numba', 'llvmlite', 'torch._inductor'} & set(sys.modules)\n"
        "assert not loaded(), loaded()\n"
        "sdg_update(torch.ones(2, 3), torch.ones(3), torch.zeros(3), beta=1.0, rate=1.0, seed=1,\n"
        "           step=1, backend='reference')\n"
        "assert not loaded(), loaded()\n"
        "assert choose_backend('cpu') == 'numba'\n"
        "assert 'numba' in loaded()\n"
    )


def test_where_numba_is_not_installed() -> None:
    said = fresh(
        "import sys, warnings\n"
        "sys.modules['numba'] = None\n"  # as if it were not there
        "import torch\n"
        "from satisfice.solver import sdg_update\n"
        "def once(**options):\n"
        "    return sdg_update(torch.ones(2, 3), torch.ones(3), torch.zeros(3), beta=1.0,\n"
        "                      rate=1.0, seed=1, step=1, **options)\n"
        "with warnings.catch_warnings(record=True) as found:\n"
        "    warnings.simplefilter('always')\n"
        "    once(), once()\n"
        "print(len(found), found[0].message)\n"
        "try:\n"
        "    once(backend='numba')\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    assert said.startswith("1 SDG's solver runs without Numba")
    assert said.count("pip install 'satisfice[fast]'") == 2


# SDG


def steps_of(rule: SDG, case: Pass, count: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Update and γ of a few steps on gradients that change."""
    size = case.gradients.shape[1]
    ids = torch.arange(len(case.gradients))
    found = []
    for step in range(1, count + 1):
        gradients = Gradients(
            ids=ids,
            losses=torch.ones(len(ids)),
            counts=torch.ones(len(ids)),
            domain=case.gradients * step,
            penalty=case.penalty_gradient,
        )
        result = rule(
            gradients, segments=[0, 10, 700, size], progress=step / count, seed=3, step=step
        )
        gamma = rule.state_dict()["gamma"]["value"]
        found.append((result.update, gamma))
    return found


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", ["split", "flip"])
def test_sdg_takes_the_same_steps_on_the_kernel_and_on_the_reference(
    kind: str, iterations: int | None, scope: str, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = some_pass(4, 1500)

    def rule() -> SDG:
        draw = "sample" if kind == "split" else "expectation"
        return SDG(candidates=kind, gamma=scope, iterations=iterations, draw=draw)

    found = steps_of(rule(), case)
    kernels = len(paths)
    assert set(paths) <= {"numba", "reference"}
    monkeypatch.setattr(update, "choose_backend", lambda *_: "reference")
    expected = steps_of(rule(), case)
    assert paths[kernels:] == ["reference"] * 3
    if scope == "coordinate":
        assert paths[:kernels] == ["numba"] * 3
    for (moved, gamma), (reference, reference_gamma) in zip(found, expected, strict=True):
        same(gamma, reference_gamma)
        if kind == "split":
            same(moved, reference)
        else:
            torch.testing.assert_close(moved, reference, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("segments", [1, 3])
def test_one_gamma_for_many_coordinates_is_that_gamma_for_each(segments: int) -> None:
    case = some_pass(4, 1500)
    shared = case.gamma.mean().expand(1500) if segments == 1 else None
    if shared is None:
        lengths = torch.tensor([10, 690, 800])
        shared = torch.tensor([0.3, 1.0, 3.0]).repeat_interleave(lengths)
    case = case._replace(gamma=shared, options={**case.options, "rate": 0.0})
    found = run(case, backend="numba")
    same(found[1], shared)
    assert assert_agrees(case, found, run(case, backend="reference")).flips == 0


# What fits no counter is refused on every path


@pytest.mark.parametrize("backend", ["numba", "compile", "reference"])
@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"step": 2**32}, "step="),
        ({"offset": -1}, "offset=-1"),
    ],
)
@pytest.mark.parametrize("draw", ["sample", "expectation"])
def test_what_fits_no_counter_is_refused(
    counter: dict[str, int], words: str, draw: str, backend: str, paths: list[str]
) -> None:
    with pytest.raises(ValueError, match=words):
        run(some_pass(draw=draw), backend=backend, **counter)
    assert not paths

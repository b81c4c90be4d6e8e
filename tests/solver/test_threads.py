"""The pool of threads, and the fused kernel on it: at once, after a fork, with any number."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from solver.reference import DTYPES, SOLVERS, Pass, Result, run, same, some_pass

from satisfice.solver import fused_cpu, threads

PATIENCE = 120  # seconds, after which what hangs is a failure; nothing else depends on it

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(params=["team", "own"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test on torch's OpenMP team and on threads of our own."""
    if request.param == "own":
        monkeypatch.setattr(threads, "_team", lambda: None)
    elif threads._team() is None:
        pytest.skip("torch has no GNU OpenMP here")
    return str(request.param)


@pytest.fixture
def own(path: str) -> None:
    if path != "own":
        pytest.skip("about threads of our own")


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ranges(count: int, parts: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with torch_threads(count):
        threads.share(lambda first, last: found.append((first, last)), parts)
    return sorted(found)


def equal(found: Result, expected: Result) -> None:
    for value, reference in zip(found, expected, strict=True):
        same(value, reference)


def tensors(result: Result) -> list[list[float]]:
    """What a pipe carries without a copy of torch's shared memory."""
    return [value.reshape(-1).tolist() for value in result]


def in_child(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns in a forked child, which ends without Python's own exit."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of what this is about: a fork of a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(work(), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    alarm = threading.Timer(PATIENCE, os.kill, (child, signal.SIGKILL))
    alarm.start()
    try:
        with os.fdopen(read, "rb") as pipe:
            sent = pipe.read()
        _, status = os.waitpid(child, 0)
    finally:
        alarm.cancel()
        alarm.join()
    assert status == 0, f"the child ended with status {status}"
    return pickle.loads(sent)  # noqa: S301 - our own child's


# The pool


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("parts", [0, 1, 2, 3, 8, 100])
def test_ranges_make_up_the_whole_one_a_thread(count: int, parts: int) -> None:
    found = ranges(count, parts)
    assert len(found) == max(1, min(count, parts))
    assert [i for first, last in found for i in range(first, last)] == list(range(parts))
    sizes = [last - first for first, last in found]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.usefixtures("two_threads")
def test_ranges_run_at_once() -> None:
    barrier = threading.Barrier(2)
    met: list[int] = []

    def work(first: int, last: int) -> None:
        barrier.wait(PATIENCE)  # where one range waited for the other, this would break
        met.append(last - first)

    threads.share(work, 2)
    assert met == [1, 1]


@pytest.mark.usefixtures("own")
@pytest.mark.usefixtures("two_threads")
def test_the_caller_takes_the_first_range() -> None:
    takers: dict[int, int] = {}
    threads.share(lambda first, _: takers.setdefault(first, threading.get_ident()), 2)
    assert takers[0] == threading.get_ident()
    assert takers[1] != threading.get_ident()


def test_with_one_thread_nothing_leaves_the_caller() -> None:
    takers: set[int] = set()
    with torch_threads(1):
        threads.share(lambda *_: takers.add(threading.get_ident()), 50)
    assert takers == {threading.get_ident()}


@pytest.mark.usefixtures("own")
@pytest.mark.usefixtures("two_threads")
def test_threads_are_kept_for_the_next_call() -> None:
    def ours() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "satisfice"}

    threads.share(lambda *_: None, 2)
    before = ours()
    for _ in range(20):
        threads.share(lambda *_: None, 2)
    assert ours() == before
    assert all(thread.daemon for thread in before)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_a_range_is_raised_in_the_caller(
    failing: int, kind: type[BaseException]
) -> None:
    ended: list[int] = []

    def work(first: int, last: int) -> None:
        try:
            if first <= failing < last:
                raise kind("of this range")
            time.sleep(0.05)
        finally:
            ended.append(first)

    with torch_threads(3):
        with pytest.raises(kind, match="of this range"):
            threads.share(work, 3)
        assert sorted(ended) == [0, 1, 2]  # nothing is still being written
        ended.clear()
        threads.share(lambda first, _: ended.append(first), 3)
    assert sorted(ended) == [0, 1, 2]  # the pool still works


@pytest.mark.usefixtures("two_threads")
def test_an_exception_in_every_range_is_raised_once() -> None:
    def work(first: int, last: int) -> None:
        raise ValueError(f"range {first} to {last}")

    with pytest.raises(ValueError, match="range 0 to 1"):
        threads.share(work, 2)


def test_calls_from_several_threads_at_once() -> None:
    start = threading.Barrier(4)

    def call(number: int) -> list[int]:
        torch.set_num_threads(3)  # OpenMP keeps the number for each thread apart
        found: list[int] = []
        start.wait(PATIENCE)
        for _ in range(50):
            found.clear()
            threads.share(lambda first, last: found.extend(range(first, last)), 10 + number)
        return sorted(found)

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(call, range(4))):
            assert found == list(range(10 + number))


# The kernel on it


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_kernel_honours_torchs_number_of_threads(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    share = threads.share

    def spy(work: Callable[[int, int], None], parts: int) -> None:
        def watched(first: int, last: int) -> None:
            seen.append((first, last))
            work(first, last)

        share(watched, parts)

    monkeypatch.setattr(fused_cpu.threads, "share", spy)
    with torch_threads(count):
        run(some_pass(3, 10_000), backend="numba")
        assert len(seen) == count
        seen.clear()
        run(some_pass(3, 100), backend="numba")
        assert len(seen) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
def test_no_result_depends_on_the_number_of_threads(
    iterations: int | None, dtype: torch.dtype
) -> None:
    case = some_pass(5, 7 * 1024 + 33, dtype, iterations=iterations)
    with torch_threads(1):
        expected = run(case, backend="numba")
    for count in (2, 3, 5, 16):
        with torch_threads(count):
            equal(run(case, backend="numba"), expected)


@pytest.mark.usefixtures("two_threads")
def test_an_exception_of_the_kernel_reaches_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any) -> None:
        raise MemoryError("no scratch")

    fused_cpu._spare.cache_clear()  # or no scratch is made
    monkeypatch.setattr(fused_cpu, "_scratch", no_memory)
    with pytest.raises(MemoryError, match="no scratch"):
        run(some_pass(3, 5000), backend="numba")


@pytest.mark.usefixtures("two_threads")
def test_the_kernel_from_two_threads_at_once() -> None:
    cases = [
        some_pass(3 + i % 2, 6000 + i, DTYPES[i % 2], seed=i, iterations=SOLVERS[i // 2 % 2])
        for i in range(4)
    ]
    expected = [run(case, backend="numba") for case in cases]
    start = threading.Barrier(4)

    def call(case: Pass) -> list[Result]:
        torch.set_num_threads(2)
        start.wait(PATIENCE)
        return [run(case, backend="numba") for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for results, reference in zip(pool.map(call, cases), expected, strict=True):
            for result in results:
                equal(result, reference)


# After a fork


@pytest.mark.usefixtures("own")
@needs_fork
@pytest.mark.usefixtures("two_threads")
def test_a_forked_child_has_no_threads_of_the_pool_and_makes_its_own() -> None:
    threads.share(lambda *_: None, 2)
    before = threads._workers
    assert before >= 1

    def work() -> tuple[int, int, int]:
        left = sum(thread.name == "satisfice" for thread in threading.enumerate())
        threads.share(lambda *_: None, 2)
        made = sum(thread.name == "satisfice" for thread in threading.enumerate())
        return left, made, threads._workers

    # None is left: a child that went on counting on the parent's would wait forever.
    assert in_child(work) == (0, 1, 1)
    assert threads._workers == before
    threads.share(lambda *_: None, 2)


@needs_fork
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_kernel_in_a_forked_child(count: int) -> None:
    case = some_pass(4, 5000)
    with torch_threads(count):
        expected = run(case, backend="numba")  # so that the pool exists
        assert in_child(lambda: tensors(run(case, backend="numba"))) == tensors(expected)
        equal(run(case, backend="numba"), expected)  # the parent's is as it was


@needs_fork
@pytest.mark.usefixtures("two_threads")
def test_the_kernel_in_a_childs_child() -> None:
    case = some_pass(4, 5000)
    expected = tensors(run(case, backend="numba"))

    def work() -> list[Any]:
        return [tensors(run(case, backend="numba")), in_child(lambda: tensors(run(case)))]

    assert in_child(work) == [expected, expected]


@needs_fork
@pytest.mark.usefixtures("two_threads")
def test_a_fork_while_another_thread_runs_the_kernel() -> None:
    case = some_pass(4, 20_000)
    expected = run(case, backend="numba")
    stop, started = threading.Event(), threading.Event()
    results: list[Result] = []

    def busy() -> None:
        torch.set_num_threads(2)
        while not stop.is_set():
            results[:] = [run(case, backend="numba")]
            started.set()

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        assert started.wait(PATIENCE)
        for _ in range(5):
            assert in_child(lambda: tensors(run(case, backend="numba"))) == tensors(expected)
    finally:
        stop.set()
        worker.join()
    equal(results[0], expected)


def _in_process(case: Pass, pipe: Any) -> None:
    pipe.send(tensors(run(case, backend="numba")))
    pipe.close()


@needs_fork
@pytest.mark.usefixtures("two_threads")
def test_the_kernel_in_a_forked_process_of_multiprocessing() -> None:
    case = some_pass(4, 5000)
    expected = run(case, backend="numba")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_process, args=(case, theirs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE)
        assert ours.recv() == tensors(expected)
    finally:
        process.join(PATIENCE)
        process.kill()
    assert process.exitcode == 0


# Which threads


def test_the_team_is_torchs_and_a_forked_child_has_none(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    for name in ("_by_team", "_by_threads"):
        by = getattr(threads, name)

        def spy(*arguments: Any, name: str = name, by: Callable[..., None] = by) -> None:
            ran.append(name)
            by(*arguments)

        monkeypatch.setattr(threads, name, spy)
    expected = "_by_team" if path == "team" else "_by_threads"
    assert ranges(2, 4) == [(0, 2), (2, 4)]
    assert ran == [expected]

    def child() -> list[str]:
        ran.clear()
        ranges(2, 4)
        return ran

    assert in_child(child) == ["_by_threads"]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_range_that_the_team_did_not_run_is_run(lost: int) -> None:
    """An interrupt may come between taking a range and running it."""

    class Team:
        @staticmethod
        def GOMP_parallel(body: Any, *_: Any) -> None:  # noqa: N802 - the library's name
            if not lost:
                body(None)

    found: list[tuple[int, int]] = []
    jobs = [threads._Range(lambda a, b: found.append((a, b)), k, k + 1) for k in range(2)]
    threads._by_team(Team, jobs)
    assert found == [(0, 1), (1, 2)]


@needs_fork
def test_a_fork_before_the_first_call_is_survived() -> None:
    """The parent has used torch's team, and satisfice only in the child."""
    script = (
        "import os, signal, torch, satisfice\n"
        "torch.set_num_threads(2)\n"
        "torch.ones(2_000_000).add(1)\n"
        "g = torch.ones(2, 20_000)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    signal.alarm({PATIENCE})\n"
        "    satisfice.solver.sdg_update(g, g[0], g[0], beta=1.0, rate=0.1, seed=0, step=1)\n"
        "    os._exit(0)\n"
        "_, status = os.waitpid(child, 0)\n"
        "raise SystemExit(status)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

"""Threads for kernels that release the interpreter, as many as torch uses.

Where torch runs on GNU OpenMP, its own team does the work: after each of torch's operations that
team spins for milliseconds, and a thread of ours would share a core with it (measured in
docs/decisions/0003). Elsewhere, and in a forked child, which has inherited no team, a few threads
of our own do. Numba's threading layers are of no use here: one kills a forked child, the other
aborts when two threads call at once.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

__all__ = ["share"]

_Job = Callable[[], None]
_TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_lock = threading.Lock()
_jobs: SimpleQueue[_Job] = SimpleQueue()
_workers = 0
_forked = False


def share(work: Callable[[int, int], None], parts: int) -> None:
    """Call ``work(first, last)`` on ranges that make up 0 … parts, one a thread; wait for all.

    An exception in any range is raised here, once all have ended.
    """
    threads = max(1, min(torch.get_num_threads(), parts))
    if threads == 1:
        work(0, parts)
        return
    cuts = [parts * i // threads for i in range(threads + 1)]
    jobs = [_Range(work, cuts[i], cuts[i + 1]) for i in range(threads)]
    team = None if _forked else _team()
    if team is None:
        _by_threads(jobs)
    else:
        _by_team(team, jobs)
    for job in jobs:
        if job.error is not None:
            raise job.error


class _Range:
    """One range of a call, whether it has ended, and what went wrong."""

    def __init__(self, work: Callable[[int, int], None], first: int, last: int) -> None:
        self._work, self._first, self._last = work, first, last
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def __call__(self) -> None:
        try:
            self._work(self._first, self._last)
        except BaseException as error:  # raised again where the call was made
            self.error = error
        finally:
            self.ended.set()


@cache
def _team() -> Any:
    """Return the OpenMP library that torch has loaded, if it is GNU's; else None."""
    if not torch.backends.openmp.is_available():
        return None
    try:
        maps = Path("/proc/self/maps").read_text()
        loaded = {line.split()[-1] for line in maps.splitlines() if "/libgomp" in line}
        # Code that torch.compile has built may have brought the system's: torch's own comes first.
        shipped = {path for path in loaded if Path(path).parent == _TORCH_LIBRARIES}
        paths = shipped or loaded
        if len(paths) != 1:
            return None
        library = ctypes.CDLL(paths.pop())
        library.GOMP_parallel.restype = None
        library.GOMP_parallel.argtypes = [_BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    except (OSError, AttributeError):
        return None
    return library


def _by_team(team: Any, jobs: list[_Range]) -> None:
    waiting = iter(jobs)  # one step of a list's iterator is atomic

    def body(_: int | None) -> None:
        for job in waiting:
            job()

    team.GOMP_parallel(_BODY(body), None, len(jobs), 0)
    for job in jobs:  # an interrupt may have come between taking a job and doing it
        if not job.ended.is_set():
            job()


def _by_threads(jobs: list[_Range]) -> None:
    _ensure(len(jobs) - 1)
    for job in jobs[1:]:
        _jobs.put(job)
    jobs[0]()
    interrupt: BaseException | None = None
    for job in jobs:
        while not job.ended.is_set():  # nobody returns while others still write
            try:
                job.ended.wait()
            except KeyboardInterrupt as error:
                interrupt = error
    if interrupt is not None:
        raise interrupt


def _ensure(count: int) -> None:
    global _workers
    if _workers >= count:
        return
    with _lock:
        while _workers < count:
            threading.Thread(target=_run, args=(_jobs,), daemon=True, name="satisfice").start()
            _workers += 1


def _run(jobs: SimpleQueue[_Job]) -> None:
    while True:
        jobs.get()()


def _forget() -> None:
    """Start anew in a forked child, which has the queue but not the threads."""
    global _jobs, _workers, _lock, _forked
    _jobs, _workers, _lock, _forked = SimpleQueue(), 0, threading.Lock(), True


# At import, because a team is lost in a fork that comes before the first call, too. (A child that
# imports satisfice only after the fork can't know; torch's own operations hang there as well.)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""A few threads for kernels that release the interpreter, as many as torch uses.

Numba's own threading layers are of no use here: one kills a forked child, the other aborts when two
threads call at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch

__all__ = ["share"]

_Job = Callable[[], None]

_lock = threading.Lock()
_jobs: SimpleQueue[_Job] = SimpleQueue()
_workers = 0
_forks_watched = False


def share(work: Callable[[int, int], None], parts: int) -> None:
    """Call ``work(first, last)`` on ranges that make up 0 … parts, one a thread; wait for all.

    The caller's thread takes the first range. An exception in any range is raised here, once all
    have ended.
    """
    threads = max(1, min(torch.get_num_threads(), parts))
    if threads == 1:
        work(0, parts)
        return
    cuts = [parts * i // threads for i in range(threads + 1)]
    _ensure(threads - 1)
    jobs = [_Range(work, cuts[i], cuts[i + 1]) for i in range(threads)]
    for job in jobs[1:]:
        _jobs.put(job)
    jobs[0]()
    errors = [error for error in [job.wait() for job in jobs] if error is not None]
    if errors:
        raise errors[0]


class _Range:
    """One range of a call, and whether it is done."""

    def __init__(self, work: Callable[[int, int], None], first: int, last: int) -> None:
        self._work, self._first, self._last = work, first, last
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def __call__(self) -> None:
        try:
            self._work(self._first, self._last)
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        return self._error


def _ensure(count: int) -> None:
    global _workers, _forks_watched
    if _workers >= count:
        return
    with _lock:
        if not _forks_watched:
            os.register_at_fork(after_in_child=_forget)
            _forks_watched = True
        while _workers < count:
            threading.Thread(target=_run, args=(_jobs,), daemon=True, name="satisfice").start()
            _workers += 1


def _run(jobs: SimpleQueue[_Job]) -> None:
    while True:
        jobs.get()()


def _forget() -> None:
    """Start anew in a forked child, which has the queue but not the threads."""
    global _jobs, _workers, _lock
    _jobs, _workers, _lock = SimpleQueue(), 0, threading.Lock()

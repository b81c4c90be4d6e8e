"""Compiled kernels on disk: found again, never trusted blindly, and never in the way."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile
from solver.reference import Result, run, some_pass

from satisfice.solver import fused_cpu, kernel_cache

SIGNATURE = numba.types.float64(numba.types.float64)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_owners = pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, not made yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("SATISFICE_CACHE", str(path))
    return path


def tiny(name: str = "tiny", sources: tuple[str, ...] = (__file__,)) -> Any:
    """A kernel that compiles in no time, from the cache or anew."""

    def add_one(x: float) -> float:  # pragma: no cover - compiled
        return x + 1.0

    dispatcher: Any = numba.njit(add_one)
    kernel_cache.keep_on_disk(dispatcher, name, sources)
    dispatcher.compile(SIGNATURE)
    assert dispatcher(1.0) == 2.0
    return dispatcher


def was_found(dispatcher: Any) -> bool:
    """Whether it was read from disk, by Numba's own count."""
    hits, misses = (sum(count.values()) for count in dispatcher.stats[1:])
    assert hits + misses <= 1
    return bool(hits)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# Found again


def test_a_kernel_is_compiled_once_and_then_read(folder: Path) -> None:
    assert not was_found(tiny())
    assert files(folder) == ["kernel.1.nbc", "kernel.nbi"]
    before = {path: path.read_bytes() for path in folder.rglob("kernel*")}
    assert was_found(tiny())
    assert before == {path: path.read_bytes() for path in folder.rglob("kernel*")}


def test_another_name_or_source_is_another_kernel(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("x = 1\n")
    assert not was_found(tiny(sources=(str(source),)))
    assert was_found(tiny(sources=(str(source),)))
    source.write_text("x = 2\n")
    assert not was_found(tiny(sources=(str(source),)))
    assert not was_found(tiny("other", (str(source),)))
    source.write_text("x = 1\n")
    assert was_found(tiny(sources=(str(source),)))
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("version", ["numba", "llvmlite"])
def test_another_version_is_another_kernel(
    version: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not was_found(tiny())
    monkeypatch.setattr(getattr(kernel_cache, version), "__version__", "0.0.0")
    assert not was_found(tiny())
    monkeypatch.undo()
    monkeypatch.setenv("SATISFICE_CACHE", str(folder))
    assert was_found(tiny())


def test_the_solvers_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variant by its own name, for the sources that make it; nothing is compiled here."""
    kept: list[tuple[str, tuple[str, ...]]] = []

    def note(_: Any, name: str, sources: tuple[str, ...]) -> None:
        kept.append((name, sources))
        raise InterruptedError

    monkeypatch.setattr(fused_cpu, "keep_on_disk", note)
    for real in (np.float32, np.float64):
        for exact in (False, True):
            with pytest.raises(InterruptedError):
                fused_cpu._compiled.__wrapped__(real, exact)
    assert len({name for name, _ in kept}) == 4
    for _, sources in kept:
        assert {"fused_cpu.py", "fused_probability.py"} <= {Path(path).name for path in sources}


# The folder


def test_the_folder_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATISFICE_CACHE", "/somewhere/else")
    assert kernel_cache.cache_folder() == Path("/somewhere/else")


@pytest.mark.parametrize(
    ("platform", "variable", "below"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("darwin", None, "Library/Caches"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
    ],
)
def test_the_folder_is_in_the_users_cache_folder(
    platform: str,
    variable: str | None,
    below: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SATISFICE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert kernel_cache.cache_folder() == tmp_path / below / "satisfice"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "named"))
        assert kernel_cache.cache_folder() == tmp_path / "named" / "satisfice"


@needs_owners
def test_folders_are_the_users_own(folder: Path) -> None:
    tiny()
    (variant,) = folder.iterdir()
    assert stat.S_IMODE(variant.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH) == 0


def test_a_folder_that_cannot_be_made_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below_a_file = tmp_path / "file"
    below_a_file.write_text("not a folder")
    monkeypatch.setenv("SATISFICE_CACHE", str(below_a_file / "cache"))
    for _ in range(2):
        assert not was_found(tiny())


def test_a_file_in_the_folders_place_is_no_obstacle(folder: Path) -> None:
    tiny()
    (variant,) = folder.iterdir()
    for path in variant.iterdir():
        path.unlink()
    variant.rmdir()
    variant.write_text("not a folder")
    for _ in range(2):
        assert not was_found(tiny())


def no_writing(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a folder read-only, for root too."""
    for inside in path.rglob("*"):
        inside.chmod(0o500 if inside.is_dir() else 0o400)

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", refused)
    monkeypatch.setattr(kernel_cache._Here, "ensure_cache_path", refused)
    monkeypatch.setattr(Path, "mkdir", refused)


def test_a_read_only_folder_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny()
    no_writing(monkeypatch, folder)
    assert was_found(tiny())


def test_a_read_only_folder_is_no_obstacle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny()
    for path in folder.rglob("kernel*"):
        path.unlink()
    no_writing(monkeypatch, folder)
    for _ in range(2):
        assert not was_found(tiny())
    assert files(folder) == []


def test_a_full_disk_is_no_obstacle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert not was_found(tiny())
    assert files(folder) == []  # what was begun is gone
    monkeypatch.undo()


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_may_write_to_is_not_used(mode: int, folder: Path) -> None:
    tiny()
    (variant,) = folder.iterdir()
    before = {path: path.read_bytes() for path in variant.iterdir()}
    variant.chmod(mode)
    assert not was_found(tiny())
    assert before == {path: path.read_bytes() for path in variant.iterdir()}
    variant.chmod(0o755)  # others may read it
    assert was_found(tiny())


@needs_owners
def test_a_folder_of_someone_else_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny()
    if os.getuid() == 0:
        (variant,) = folder.iterdir()
        os.chown(variant, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not was_found(tiny())


def test_without_a_home_every_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: Path) -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.delenv("SATISFICE_CACHE", raising=False)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    assert not was_found(tiny())


# Damage


def damaged(content: bytes, how: str) -> bytes:
    return {"emptied": b"", "cut": content[: len(content) // 2], "other": b"\x00nonsense"}[how]


@pytest.mark.parametrize("how", ["emptied", "cut", "other"])
@pytest.mark.parametrize("name", ["kernel.1.nbc", "kernel.nbi"])
def test_a_damaged_file_is_written_anew(name: str, how: str, folder: Path) -> None:
    tiny()
    (path,) = folder.rglob(name)
    path.write_bytes(damaged(path.read_bytes(), how))
    assert not was_found(tiny())
    assert was_found(tiny())


@pytest.mark.parametrize("name", ["kernel.1.nbc", "kernel.nbi"])
def test_a_missing_file_is_written_anew(name: str, folder: Path) -> None:
    tiny()
    (path,) = folder.rglob(name)
    path.unlink()
    assert not was_found(tiny())
    assert was_found(tiny())
    assert files(folder) == ["kernel.1.nbc", "kernel.nbi"]


# Several processes


@needs_fork
def test_four_processes_fill_it_at_once(folder: Path) -> None:
    """With a small kernel, in forked children that start together."""
    start, go = os.pipe()
    children = []
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
            child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(go)
                os.read(start, 1)  # until the parent closes its end
                tiny()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(start)
    os.close(go)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert files(folder) == ["kernel.1.nbc", "kernel.nbi"]
    assert was_found(tiny())


PROCESS = """
import hashlib, json, sys
import numpy as np, torch
from satisfice.solver import fused_cpu
from solver.reference import run, some_pass
sys.stdin.readline()
found = []
for iterations in (25, None):
    result = run(some_pass(5, 3000, iterations=iterations), backend="numba")
    stats = fused_cpu._compiled(np.float32, iterations is None).stats
    bits = b"".join(value.numpy().tobytes() for value in result)
    found.append([hashlib.sha256(bits).hexdigest(), sum(stats.cache_hits.values())])
print(json.dumps(found))
"""


def process(folder: Path) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    return subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-W", "error", "-c", PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SATISFICE_CACHE": str(folder), "PYTHONPATH": tests},
    )


def answer(running: subprocess.Popen[str]) -> list[tuple[str, int]]:
    printed, _ = running.communicate("go\n")
    assert running.returncode == 0
    return [(digest, hits) for digest, hits in json.loads(printed)]


def digest(result: Result) -> str:
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in result)).hexdigest()


@pytest.mark.slow
def test_four_processes_fill_it_at_once_with_the_solvers_kernels(folder: Path) -> None:
    expected = [
        digest(run(some_pass(5, 3000, iterations=iterations), backend="numba"))
        for iterations in (25, None)
    ]
    with_threads = [process(folder) for _ in range(4)]
    answers: list[list[tuple[str, int]]] = []
    waiting = [
        threading.Thread(target=lambda one=one: answers.append(answer(one))) for one in with_threads
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert len(answers) == 4
    for found in answers:
        assert [of_one for of_one, _ in found] == expected
    assert files(folder) == ["kernel.1.nbc"] * 2 + ["kernel.nbi"] * 2
    assert answer(process(folder)) == [(of_one, 1) for of_one in expected]  # and compiles nothing

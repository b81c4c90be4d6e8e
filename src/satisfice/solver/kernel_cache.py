"""Compiled kernels on disk, in the user's cache folder.

Numba's own cache keeps one index for all variants of a function and writes it before the code, so
two processes that fill it with different variants at once can cross them. Here every variant (its
source, the versions, the processor) has a folder to itself: whoever writes there writes the same.
A folder that can't be written to is still read; one that others may write to is not used, because
what is read is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import sys
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)

__all__ = ["cache_folder", "keep_on_disk"]


def cache_folder() -> Path:
    """Return satisfice's folder in the user's cache folder; SATISFICE_CACHE names another."""
    given = os.environ.get("SATISFICE_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "satisfice"


def keep_on_disk(dispatcher: Any, name: str, sources: tuple[str, ...]) -> None:
    """Let ``dispatcher`` read its one compiled variant from disk, and write it there.

    Parameters
    ----------
    dispatcher
        What ``numba.njit`` made, not compiled yet.
    name
        The variant's, among those of ``sources``.
    sources
        The files that determine the code.
    """
    codegen = dispatcher.targetctx.codegen()
    parts = [numba.__version__, llvmlite.__version__, platform.python_version(), name]
    digest = hashlib.sha256(repr((*parts, codegen.magic_tuple())).encode())
    for source in sources:
        digest.update(Path(source).read_bytes())
    with contextlib.suppress(OSError, RuntimeError):  # no home, no permission: compile each time
        folder = cache_folder() / f"{name}-{digest.hexdigest()[:16]}"
        with contextlib.suppress(OSError):  # it may be there and only not be ours to write
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _ours_alone(folder):
            dispatcher._cache = _Cache(dispatcher.py_func, folder)


def _ours_alone(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (os.getuid(), 0) and not others


class _Here(_CacheLocator):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return ""  # the folder's name holds it

    def get_disambiguator(self) -> str:
        return ""


class _Files(CompileResultCacheImpl):
    def __init__(self, folder: Path) -> None:
        self._locator = _Here(folder)
        self._filename_base = "kernel"


class _Index(IndexDataCacheFile):
    def _load_index(self) -> Any:
        try:
            return super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:
            return {}


class _Cache(FunctionCache):
    """Numba's cache of one function, in a folder of our choice, for one variant."""

    def __init__(self, function: Any, folder: Path) -> None:
        self._name = repr(function)
        self._py_func = function
        self._impl = _Files(folder)
        self._cache_path = str(folder)
        self._cache_file = _Index(self._cache_path, "kernel", "")  # type: ignore[no-untyped-call]
        self._enabled = True

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (sig, codegen.magic_tuple())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # Numba would first set up its compiler, 0.2 s that code from disk has no use for.
        try:
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]

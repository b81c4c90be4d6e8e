"""A record says where its figures come from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from satisfice.results import provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(  # noqa: S603
        ["git", *identity, *arguments],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_checkout_is_named_by_its_commit(checkout: Path) -> None:
    commit = provenance(checkout)["commit"]
    assert commit == {"id": git(checkout, "rev-parse", "HEAD"), "dirty": False}


def test_a_change_makes_it_dirty_but_not_one_of_an_output(checkout: Path) -> None:
    (checkout / "records").mkdir()
    (checkout / "records" / "a.json").write_text("{}")
    assert provenance(checkout)["commit"]["dirty"]
    assert not provenance(checkout, outputs=("records",))["commit"]["dirty"]
    (checkout / "code.py").write_text("2")
    assert provenance(checkout, outputs=("records",))["commit"]["dirty"]


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert provenance(tmp_path)["commit"] == {"id": None, "dirty": False}


def test_versions_and_machine_are_plain_json(tmp_path: Path) -> None:
    found = json.loads(json.dumps(provenance(tmp_path)))
    assert {"satisfice", "torch", "numpy", "python"} <= set(found["versions"])
    assert found["machine"]["cpus"] >= 1

"""Every example in the README and the documentation runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from satisfice import registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_examples_of_a_page_run_one_after_another(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_PENALTIES", dict(registry._PENALTIES))
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)  # noqa: S102 - our own documentation


def test_the_readme_has_examples() -> None:
    assert len(blocks(ROOT / "README.md")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_scripts_run(script: Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_demo_shows_what_its_text_says() -> None:
    """The sum pays excess risk, SDG less, and within a bound nothing."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import two_clinics
    finally:
        sys.path.pop(0)

    def risk(name: str, strength: float | None, bound: float | None) -> float:
        u, v = two_clinics.train(name, strength, bound).tolist()
        return (u + v - 1) ** 2 / 2

    for strength in (1.0, 10.0):
        assert risk("sdg", strength, 1.0) < 1e-4
        assert risk("sdg", strength, None) < 0.7 * risk("joint", strength, None)
    assert risk("erm", None, None) < 1e-9

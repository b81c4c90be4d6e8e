"""The order of layers, the public names and their docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import satisfice

ROOT = Path(satisfice.__file__).parent

# Each may import from those before it, never from those after it.
LAYERS = [
    "errors",
    "solver",
    "penalties",
    "rules",
    "registry",
    "gradients",
    "method",
    "step",
    "distributed",
    "data",
    "models",
    "training",
    "results",
    "report",
    "experiments",
    "benchmarks",
    "integrations",
    "cli",
]
# DESIGN keeps these on numbers alone.
ONLY = {"results": {"errors"}}

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(satisfice.__path__, prefix="satisfice.")
)


def imported_layers(source: str) -> set[str]:
    """Return the top-level parts of satisfice that a source file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that layers can be read off"
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        parts = [name.split(".") for name in names]
        found |= {part[1] for part in parts if part[0] == "satisfice" and len(part) > 1}
        # A name that the top package re-exports would hide where it comes from.
        assert not (set(satisfice.__all__) & found - set(LAYERS)), "import from the layer itself"
    return found & set(LAYERS)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


SOURCES = sorted(p for p in ROOT.rglob("*.py") if layer_of(p) not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_layers_import_downwards_only(path: Path) -> None:
    layer = layer_of(path)
    assert layer in LAYERS, f"{layer} has no place in the order of layers"
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    allowed &= ONLY.get(layer, allowed) | {layer}
    assert imported_layers(path.read_text()) <= allowed


def test_the_check_of_layers_can_fail() -> None:
    assert imported_layers("from satisfice.rules import SDG") == {"rules"}
    assert imported_layers("from satisfice import rules, solver") == {"rules", "solver"}
    with pytest.raises(AssertionError, match="from the layer itself"):
        imported_layers("from satisfice import domain_losses")
    assert imported_layers("def f():\n    import satisfice.step.eager as e") == {"step"}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_resolves_and_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} says nothing about itself"
    public = getattr(module, "__all__", None)
    assert public is not None, f"{name} has no __all__"
    assert list(public) == sorted(set(public), key=public.index)
    for item in public:
        value = getattr(module, item)
        if inspect.isroutine(value):
            assert inspect.getdoc(value), f"{name}.{item} has no docstring"
        if inspect.isclass(value) and value.__module__.startswith("satisfice"):
            own = vars(value).get("__doc__")  # getdoc would take a parent's
            assert own, f"{name}.{item} has no docstring"
            assert not own.startswith(f"{item}("), f"{name}.{item} has only a generated docstring"
            for attribute, member in vars(value).items():
                written = inspect.isfunction(member) or isinstance(member, property)
                if written and not attribute.startswith("_"):
                    assert member.__doc__, f"{item}.{attribute} has no docstring"


@pytest.mark.parametrize("package", ["satisfice.solver", "satisfice.penalties", "satisfice.rules"])
def test_public_names_pass_through_their_package(package: str) -> None:
    """What another layer imports comes from the package, so that files can move."""
    inside = package.removeprefix("satisfice.")
    for path in SOURCES:
        if layer_of(path) == inside:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
                pytest.fail(f"{path} imports from {node.module}, not from {package}")


def test_an_import_has_no_side_effect() -> None:
    """Neither a file, nor a random number, nor an optional dependency."""
    code = (
        "import sys, torch; torch.manual_seed(3); before = torch.get_rng_state(); "
        "import satisfice.registry; assert torch.equal(before, torch.get_rng_state()); "
        "print(*{m.split('.')[0] for m in sys.modules} & "
        "{'numba', 'scipy', 'sklearn', 'pyarrow', 'yaml', 'typer', 'matplotlib', 'safetensors'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == ""
    assert done.stderr == ""


def test_no_file_is_long() -> None:
    for path in SOURCES:
        assert len(path.read_text().splitlines()) <= 400, path

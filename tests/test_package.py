"""What importing the package costs, and who may import whom."""

import ast
import pathlib
import subprocess
import sys

import pytest

import rosmo

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "rosmo"
HEAVY = ["gin", "tensorflow", "tensorflow_datasets", "distrax", "bsuite", "gymnasium", "matplotlib", "pandas"]
# A room may import only rooms before it.
CORE = ["types", "registry", "codec", "networks", "model", "operators", "regularizers", "agents", "cache"]
CORE += ["frames", "sharding", "optimizer", "learner"]
ORDER = [*CORE, "disk", "data", "envs", "video", "evaluate", "dqn", "policies", "collect", "report"]
ORDER += ["experiments", "runs", "tpu"]
ORDER += ["configs", "commands", "cli"]
EDGE = {"gin": ["configs", "commands"], "argparse": ["commands", "cli"]}


def test_a_bare_import_loads_nothing_heavy():
    code = f"import sys, rosmo; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def imports_of(path: pathlib.Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: absolute imports alone"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room = room_of(path)
    for name in imports_of(path):
        top, *rest = name.split(".")
        if room in CORE:
            assert top not in HEAVY, f"{path} imports {name}"
        if top in EDGE:
            assert room in EDGE[top], f"{path} imports {name}"
        if top == "rosmo" and room != "__init__" and rest[0] != room:
            assert rest[0] in ORDER[: ORDER.index(room)], f"{path} imports {name}"
        if top == "rosmo" and room in ("operators", "regularizers"):
            assert rest[0] in (room, "types", "registry", "codec"), f"{path} imports {name}"


def test_the_package_says_its_version_and_is_typed():
    assert rosmo.__version__ in (ROOT / "pyproject.toml").read_text()
    assert rosmo.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(rosmo, name) for name in rosmo.__all__)

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
CORE = ["types", "registry", "codec", "networks", "model", "operators", "regularizers", "agents"]
CORE += ["worlds", "data", "learner"]
ORDER = [*CORE, "envs", "collect", "evaluate", "runs", "costs", "experiments", "report", "configs"]
ORDER += ["trained", "commands", "cli", "__main__"]
HALL = {"types", "registry", "codec", "model", "cli", "__init__", "__main__"}
LONGEST_FILE, LONGEST_FUNCTION = 320, 60  # lines; those of a docstring do not count in a function
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
        lazily = {"data": HEAVY, "worlds": ["distrax"]}.get(
            room, []
        )  # where it is used, and in that room alone
        if room in CORE:
            assert top not in HEAVY or top in lazily, f"{path} imports {name}"
        if top in EDGE:
            assert room in EDGE[top], f"{path} imports {name}"
        if top == "rosmo" and room != "__init__" and rest[0] not in (room, "__version__"):
            assert rest[0] in ORDER[: ORDER.index(room)], f"{path} imports {name}"
        if top == "rosmo" and room in ("operators", "regularizers"):
            assert rest[0] in (room, "types", "registry", "codec"), f"{path} imports {name}"


def test_every_module_has_a_room_but_the_hall():
    assert {path.stem for path in PACKAGE.glob("*.py")} == HALL


def functions_of(path: pathlib.Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            spoken = docstring.count("\n") + 1 if docstring else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - spoken


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_fit_a_screen(path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE
    assert [name for name, lines in functions_of(path) if lines > LONGEST_FUNCTION] == []


@pytest.mark.parametrize(("former", "now"), sorted(rosmo._MOVED.items()))
def test_modules_that_moved_are_found_by_their_former_names(former, now):
    code = f"import sys, {former}; sys.exit({former} is not sys.modules[{now!r}])"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_that_users_import_are_where_they_were():
    from rosmo.sharding import make_mesh, mesh_shape, split_rule  # noqa: F401

    from rosmo.collect import SETTINGS, Collected, collect, greedy_score, record  # noqa: F401
    from rosmo.data import FrameStore, HostSampler, StoreSampler, window_sampler, write_store  # noqa: F401
    from rosmo.evaluate import Evaluator, Scores, summarise  # noqa: F401
    from rosmo.learner import Learner, TrainState, adamw  # noqa: F401
    from rosmo.report import Compute, count_flops, learning_curve, update_compute, write  # noqa: F401

    assert rosmo.sharding.make_mesh is make_mesh


def test_the_package_says_its_version_and_is_typed():
    assert rosmo.__version__ in (ROOT / "pyproject.toml").read_text()
    assert rosmo.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(rosmo, name) for name in rosmo.__all__)

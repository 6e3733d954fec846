"""Examples and the README's code run as a user would run them."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.limits import HUNG

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env=os.environ, timeout=HUNG
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_short_and_run(path):
    assert len(path.read_text().splitlines()) < 60
    assert run(str(path)).strip()


def test_the_readmes_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    blocks = [block for block in blocks if "rosmo.load" not in block]  # tests/trained has a run to load
    assert blocks
    for block in blocks:
        run("-c", block)


def test_the_readmes_test_command_is_what_ci_runs():
    assert "./dev test" in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec ./dev test")

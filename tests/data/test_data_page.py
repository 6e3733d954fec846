"""The lines of docs/data.md, run as a user would: data of each kind, from a file to an agent that acts."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np

from tests.limits import HUNG

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "data.md"
KINDS = ("Flat arrays", "Episodes of gymnasium", "Transitions", "Minari", "RLDS")


def code_of(section: str) -> list[str]:
    text = re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)
    (body,) = [part for part in text if part.startswith(section)]
    return re.findall(r"```python\n(.*?)```", body, re.DOTALL)


def lines_of(code: str) -> int:
    return len([line for line in code.splitlines() if line.strip()])


def write_walks(path):
    """Forty walks of five steps; what they observe says how far they went."""
    step = np.arange(200)
    rng = np.random.default_rng(0)
    shown = np.stack([step % 5, (step % 5) ** 2, step // 100, rng.normal(size=200)], axis=1)
    following = np.append(shown[1:], shown[:1], axis=0)
    np.savez(
        path,
        observations=shown.astype(np.float32),
        actions=rng.integers(0, 2, 200),
        rewards=rng.normal(size=200),
        next_observations=following.astype(np.float32),
        terminals=(step % 5 == 4) & (step < 100),
        timeouts=(step % 5 == 4) & (step >= 100),
    )


def test_every_kind_of_data_is_trained_on_by_the_lines_of_the_page(tmp_path):
    write_walks(tmp_path / "walks.npz")
    (shared,) = code_of("Bring your own")
    script = [shared]
    for kind in KINDS:
        *before, path = code_of(kind)
        assert lines_of(shared) + lines_of(path) < 15, kind
        script += [*before, path, f"print({kind!r}, trained.act(rows['observations'][:3]))"]
    # As in the suite: what is compiled runs for a second, and the compiler for longer.
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "MINARI_DATASETS_PATH": str(tmp_path / "minari")}
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | quick, timeout=HUNG,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for kind in KINDS:
        assert re.search(rf"^{kind} \[[01] [01] [01]\]$", run.stdout, re.MULTILINE), kind

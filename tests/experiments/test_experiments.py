import itertools
import re
from pathlib import Path

import pytest

from rosmo import configs, experiments

RUNS = {"ablation": 8 * 3, "bsuite-benchmark": 5 * 3, "capacity": 2 * 3 * 4, "coverage": 2 * 3 * 4}
RUNS |= {"operators": 9 * 3, "cartpole-long": 4, "minatar": 6 * 5, "noise": 2 * 4, "search": 3 * 2 * 3}
RUNS |= {"worlds": 5 * 2, "worlds-catch": 5, "early-stopping": 2 * 3, "early-stopping-minatar": 2 * 2}
RUNS |= {"pessimism": 3 * 3 * 2}


def test_there_is_one_for_each_table_and_figure():
    assert experiments.names() == sorted(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_every_run_of_a_grid_has_a_folder_of_its_own_and_a_configuration_that_loads(name):
    experiment = experiments.load(name)
    cells = list(experiment.cells())
    assert len(cells) == RUNS[name] * experiment.seeds
    assert len({cell.folder for cell in cells}) == len(cells)
    built = [configs.load(cell.configs, cell.bindings) for cell in cells if cell.seed == 0]
    assert [training.environment for training in built] == [
        cell.environment for cell in cells if cell.seed == 0
    ]


def test_a_method_has_the_last_word_on_its_length():
    experiment = experiments.load("bsuite-benchmark")
    updates = {
        (cell.method, cell.environment): configs.load(cell.configs, cell.bindings).num_updates
        for cell in itertools.islice(experiment.cells(), 15)
    }
    assert updates["ROSMO", "catch"] == updates["ROSMO", "cartpole"] == 200_000
    assert updates["MZU", "catch"] == 20_000
    assert updates["MZU", "mountain_car"] == 50_000


def test_a_bad_file_and_an_unknown_name_are_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no experiment 'nose'; there are: ablation, "):
        experiments.load("nose")
    file = tmp_path / "mine.toml"
    file.write_text("about = 'x'\nmethod = {}\n")
    with pytest.raises(
        ValueError, match=r"mine\.toml is no experiment: .* no 'method'; did you mean 'methods'"
    ):
        experiments.load(str(file))
    file.write_text("about = 'x'\nmethods = { A = {} }\n")
    with pytest.raises(ValueError, match="is no experiment: it has no environments"):
        experiments.load(str(file))
    (tmp_path / "noise.toml").write_text(file.read_text())
    with pytest.raises(ValueError, match="has the name of a packaged experiment"):
        experiments.load(str(tmp_path / "noise.toml"))


def test_a_packaged_file_is_read_by_its_path_too(monkeypatch):
    folder = Path(experiments.__file__).parent
    monkeypatch.chdir(folder.parent)
    assert experiments.load(f"{folder.name}/noise.toml") == experiments.load("noise")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("figure = 'pie'", "figure must be one of curves, bars, lines, got 'pie'"),
        ("seeds = 0", "seeds must be a whole number of at least 1, got 0"),
        ("settings.low = { binding = ['noise = 0.5'] }", "settings.low has configs and bindings, and no"),
        ("settings.low = { bindings = 'noise = 0.5' }", "settings.low.bindings must be a list of texts"),
        ("settings.low = 'noise'", "settings.low must be a table of configs and bindings, got 'noise'"),
        ("settings = {}", "settings must be a table with at least one entry, got {}"),
        ("methods = ['A']", "methods must be a table with at least one entry, got ['A']"),
        ('methods."A\\nB" = {}', r"methods has the name 'A\nB', which no table could show"),
        ("bindings = 'num_updates = 600'", "bindings must be a list of texts, got 'num_updates = 600'"),
        ("seeds = true", "seeds must be a whole number of at least 1, got True"),
        ("axis = 3", "axis must be a text, got 3"),
        ("paper.cacth.''.A = [1, 0]", "paper has no 'cacth'; did you mean 'catch'?"),
        ("paper.catch.low.A = [1, 0]", "paper.catch has no 'low'; there are: ''"),
        ("paper.catch.''.B = [1, 0]", "paper.catch.\"\" has no 'B'; there are: 'A'"),
        ("paper.catch = 3", "paper.catch must be a table, got 3"),
        ("paper.catch.''.A = 3", 'paper.catch."".A must be [mean, standard deviation], got 3'),
        ("paper.catch.''.A = [1]", 'paper.catch."".A must be [mean, standard deviation], got [1]'),
        ("paper.catch.''.A = [1, nan]", 'paper.catch."".A must be [mean, standard deviation], got [1, nan]'),
        ("methods = { A = {}, 'A+' = {} }", "would share the folder a-catch/seed0"),
    ],
)
def test_a_mistake_in_a_file_is_named(line, message, tmp_path):
    file = tmp_path / "mine.toml"
    methods = "" if line.startswith("methods") else "methods = { A = {} }\n"
    file.write_text(f"about = 'x'\n{methods}environments = {{ catch = {{}} }}\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        experiments.load(str(file))


def test_configurations_beside_a_file_are_found_from_any_folder(tmp_path):
    (tmp_path / "mine.gin").write_text("include 'bsuite/bc.gin'\n")
    file = tmp_path / "mine.toml"
    file.write_text(
        "about = 'x'\nmethods.A.configs = ['mine.gin', 'bsuite/catch']\nenvironments.catch = {}\n"
    )
    cell = next(experiments.load(str(file)).cells())
    assert cell.configs == (str(tmp_path / "mine.gin"), "bsuite/catch")

import itertools
import re

import pytest

from rosmo import configs, experiments

RUNS = {"ablation": 8 * 3, "bsuite-benchmark": 5 * 3, "capacity": 2 * 3 * 4, "coverage": 2 * 3 * 4}
RUNS |= {"cartpole-long": 4, "minatar": 5 * 2, "noise": 2 * 4, "search": 3 * 2 * 3}


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


def test_the_papers_figures_are_of_methods_and_settings_that_are_run():
    for name in RUNS:
        experiment = experiments.load(name)
        for environment, settings in experiment.paper.items():
            assert environment in experiment.environments
            for setting, methods in settings.items():
                assert setting in experiment.settings
                assert set(methods) <= set(experiment.methods)


def test_a_bad_file_and_an_unknown_name_are_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no experiment 'nose'; there are: ablation, "):
        experiments.load("nose")
    file = tmp_path / "mine.toml"
    file.write_text("about = 'x'\nmethod = {}\n")
    with pytest.raises(ValueError, match=r"mine\.toml is no experiment: "):
        experiments.load(str(file))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("figure = 'pie'", "figure must be one of curves, bars, lines, got 'pie'"),
        ("seeds = 0", "seeds must be a whole number of at least 1, got 0"),
        ("settings.low = { binding = ['noise = 0.5'] }", "settings.low has configs and bindings, and no"),
        ("settings.low = { bindings = 'noise = 0.5' }", "settings.low.bindings must be a list of texts"),
        ("settings.low = 'noise'", "is no experiment"),
        ("methods = { A = {}, 'A+' = {} }", "would share the folder a-catch/seed0"),
    ],
)
def test_a_mistake_in_a_file_is_named(line, message, tmp_path):
    file = tmp_path / "mine.toml"
    methods = "" if line.startswith("methods") else "methods = { A = {} }\n"
    file.write_text(f"about = 'x'\n{methods}environments = {{ catch = {{}} }}\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        experiments.load(str(file))

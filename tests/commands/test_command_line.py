"""What the command line answers: at once, and with the nearest where it does not know."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rosmo
from rosmo import commands, configs
from rosmo.cli import main
from rosmo.commands.completion import SHELLS
from tests.limits import HUNG

HEAVY = ("jax", "numpy", "gin", "tensorflow_datasets", "gymnasium", "matplotlib", "shtab")


@pytest.mark.parametrize("asked", ["--help", "--version", "trian"])
def test_nothing_heavy_is_imported_to_answer(asked):
    """Seconds depend on the machine, and what is imported makes them."""
    code = "import sys\nfrom rosmo.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += f"print('loaded:', *(m for m in {HEAVY} if m in sys.modules))"
    command = [sys.executable, "-c", code, asked]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HUNG)
    assert result.stdout.splitlines()[-1].strip() == "loaded:"


def test_the_help_names_every_command_as_its_file_does(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    for name in commands.names():
        about = (commands.load(name).__doc__ or "").partition("\n")[0]
        assert about.endswith(".")
        assert f"{name} {about}" in shown
    files = {path.stem for path in Path(commands.__file__).parent.glob("[!_]*")} - {
        "parser",
        "shared",
        "worlds",
    }
    assert {commands.load(name).__name__.rpartition(".")[2] for name in commands.names()} == files


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"rosmo {rosmo.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "rosmo has no command 'trian'. Did you mean 'train'?"),
        (["data", "convrt", "a"], "rosmo data has no command 'convrt'. Did you mean 'convert'"),
        (["--verison"], "rosmo has no --verison. Did you mean '--version'?"),
        (["evaluate", "run", "--episods", "5"], "rosmo evaluate has no --episods. Did you mean '--episodes'"),
        (
            ["data", "convert", "--spilt=x", "a", "b"],
            "rosmo data convert has no --spilt. Did you mean '--split'",
        ),
        (["list", "-n"], "rosmo list has no -n. rosmo list --help lists what it takes."),
        (["train", "--num-updates", "100"], "It is a setting: write -p 'num_updates = 100'."),
        (["train", "--num_updates=100"], "It is a setting: write -p 'num_updates = 100'."),
        (["train", "bsuite/rosmo", "--operator", "mcts"], "It is a setting: write -p 'operator = @mcts'."),
        (
            ["train", "--environment", "gym/CartPole-v1"],
            "It is a setting: write -p \"environment = 'gym/CartPole-v1'\".",
        ),
        (["train", "--data", "walks.npz"], "It is a setting: write -p \"data = 'walks.npz'\"."),
        (["train", "--dynamics", "(64,)"], "It is a setting: write -p 'dynamics = (64,)'."),
        (["evaluate", "run", "--noise", "0.5"], "rosmo evaluate has no --noise."),
    ],
)
def test_what_there_is_not_is_answered_with_the_nearest(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_data_and_environments_are_no_configurations(capsys):
    assert main(["train", "walks.npz"]) == 1
    assert (
        "walks.npz is data, and no configuration: write -p \"data = 'walks.npz'\"" in capsys.readouterr().err
    )
    assert main(["train", "gym/CartPole-v1"]) == 1
    assert "chosen by -p \"environment = 'gym/CartPole-v1'\"" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "-p=operater = @mcts"],
        ["train", "-poperater = @mcts"],
        ["train", "--bin", "operater = @mcts"],
        ["train", "--bind", "operater = @mcts", "--"],
    ],
)
def test_every_way_to_write_a_flag_is_let_through(arguments, capsys):
    assert main(arguments) == 1
    assert "Did you mean 'operator'" in capsys.readouterr().err


def lines_of(capsys, *arguments) -> dict[str, tuple[str, str]]:
    assert main(["settings", *arguments]) == 0
    rows = re.findall(r"^(\S+) = (.*?) +# (.*)$", capsys.readouterr().out, re.MULTILINE)
    return {name: (value, about) for name, value, about in rows}


def test_settings_have_their_values_comments_and_origins(capsys):
    found = lines_of(capsys, "minatar/rosmo", "minatar/freeway", "-p", "noise = 0.25")
    assert found["environment"] == (
        "'minatar/freeway'",
        "or asterix, freeway, seaquest, space_invaders [minatar/freeway.gin]",
    )
    assert found["noise"][0] == "0.25"
    assert found["noise"][1].endswith("while the data was collected [-p]")
    assert found["num_updates"] == ("10000", "some minutes on one core [minatar/base.gin]")
    assert found["discount"] == ("0.988053892081", "γ = 0.997⁴ [bsuite/base.gin]")
    assert found["behavior_weight"] == ("1.0", "α of the behaviour regularizer [minatar/rosmo.gin]")
    assert found["train.final_episodes"] == (
        "100",
        "episodes that the trained agent is scored by. [runs/training.py]",
    )
    assert "latent_agent.operator" not in found  # is %operator, which is listed
    assert "train.num_updates" not in found


def test_settings_that_nothing_uses_are_not_listed(capsys):
    found = lines_of(capsys, "bsuite/crr")
    assert found["positions"][0] == "6"
    assert "operator" not in found
    assert "mcts.num_simulations" not in found


def test_what_is_listed_is_what_a_file_says_and_what_gin_reads(tmp_path, capsys):
    own = tmp_path / "own.gin"
    own.write_text("include 'bsuite/mzu.gin'\nbins = 21  # odd, '#' or not\ntrain.final_episodes = 3\n")
    found = lines_of(capsys, str(own))
    assert found["bins"] == ("21", f"odd, '#' or not [{own}]")
    assert found["train.final_episodes"][0] == "3"
    bindings = [
        f"{name} = {value}" for name, (value, _) in found.items() if "@" not in value and "." not in name
    ]
    assert len(bindings) > 25
    assert configs.load([str(own)], bindings).final_episodes == 3


def test_parts_are_listed_as_a_configuration_names_them(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "source=@one_step" in listed
    assert " at 0x" not in listed


def test_atari_is_one_line_of_the_list(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [atari] = [line for line in lines if "Alien" in line]
    assert "46 games" in atari
    assert "Zaxxon" in atari
    assert any(line.split()[:1] == ["gym/ID"] for line in lines)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_knows_commands_flags_and_names(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    expected = ("evaluate", "minatar/rosmo", "mountain_car", "convert", "noise")
    for word in expected:
        assert word in script
    assert "num-processes" in script


def test_bash_completes_as_the_script_says(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "rosmo.bash").write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        program = f"source rosmo.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        program += "_shtab_rosmo rosmo; printf '%s\\n' \"${COMPREPLY[@]}\""
        result = subprocess.run(
            ["bash", "-c", program], capture_output=True, text=True, cwd=tmp_path, env=os.environ, check=False
        )
        return result.stdout.split()

    assert "train" in completed("rosmo", "tr")
    assert completed("rosmo", "train", "bsuite/car") == ["bsuite/cartpole"]
    assert completed("rosmo", "train", "--resu") == ["--resume"]
    assert completed("rosmo", "collect", "mountain") == ["mountain_car"]

"""Runs that are opened in a program, beside each other and beside what else the program does."""

import shutil

import gin
import jax.numpy as jnp
import numpy as np
import pytest

import rosmo
from rosmo.operators import Improvement
from rosmo.runs.folder import RunFolder


@pytest.fixture(scope="module")
def trained(runs):
    return rosmo.load(runs / "rosmo")


OBSERVATION = np.eye(10, 5, dtype=np.float32)


def test_a_run_is_opened_as_an_agent(trained, runs):
    assert trained.observation_shape == (10, 5)
    assert trained.act(OBSERVATION) in (0, 1, 2)
    assert trained.act(np.stack([OBSERVATION] * 4), greedy=True).shape == (4,)
    assert isinstance(trained.improve(OBSERVATION), Improvement)
    assert trained.model.encode(jnp.asarray(OBSERVATION[None])).shape == (1, 6)
    assert trained.agent.unroll_steps == 5
    said = {
        name: trained.settings[name] for name in ("environment", "seed", "step", "batch_size", "operator")
    }
    assert said == {
        "environment": "catch", "seed": 0, "step": 10, "batch_size": 8, "operator": "@operators.one_step",
    }  # fmt: skip


def test_it_plays_as_the_run_was_scored(trained, runs):
    """By the parameters of the last update, with the seed that runs are scored by."""
    result = RunFolder(runs / "rosmo").read_result()
    played = rosmo.evaluate(trained, "catch", episodes=2, seed=2**30 - 1)
    assert played.returns.tolist() == result.sampled


def test_an_earlier_checkpoint_has_other_parameters(trained, runs):
    earlier = rosmo.load(runs / "rosmo", step=5)
    assert earlier.settings["step"] == 5
    weights = [each.model.networks.prediction for each in (trained, earlier)]
    assert str(weights[0]) == str(weights[1])
    assert not np.array_equal(*(each.improve(OBSERVATION).qvalues for each in (trained, earlier)))
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of update 7 in .*; there are: 5, 10"):
        rosmo.load(runs / "rosmo", step=7)


def test_agents_act_by_their_own_settings_whatever_is_loaded_beside_them(runs):
    first = rosmo.load(runs / "rosmo")
    second = rosmo.load(runs / "prior")
    for _ in range(2):  # both are first compiled after both are loaded
        assert np.all(np.isfinite(first.improve(OBSERVATION).qvalues))
        assert np.all(np.isnan(second.improve(OBSERVATION).qvalues))
    played = [rosmo.evaluate(each, "catch", episodes=2).returns for each in (first, second)]
    assert all(np.all(np.abs(returns) == 1) for returns in played)


def test_what_a_program_has_told_gin_is_as_it_was(runs):
    gin.clear_config()

    @gin.configurable
    def mine_of_this_test(size=1):
        return size

    gin.parse_config("mine_of_this_test.size = 7")
    rosmo.load(runs / "rosmo")
    assert mine_of_this_test() == 7
    with pytest.raises(FileNotFoundError, match="is no run"):
        rosmo.load(runs)
    assert mine_of_this_test() == 7
    gin.clear_config()


def test_of_several_seeds_one_is_named(runs, tmp_path):
    several = tmp_path / "several"
    several.mkdir()
    settings = '{"seeds": 2, "data_dir": "", "wandb": null, "data": null, "imports": []}'
    (several / "settings.json").write_text(settings)
    shutil.copytree(runs / "rosmo", several / "seed1")
    with pytest.raises(ValueError, match="has 2 seeds: say which agent, by seed=0, …, seed=1"):
        rosmo.load(several)
    with pytest.raises(ValueError, match="has 2 seeds"):
        rosmo.load(several, seed=2)
    assert rosmo.load(several, seed=1).act(OBSERVATION) in (0, 1, 2)
    assert rosmo.load(runs / "rosmo", seed=0).act(OBSERVATION) in (0, 1, 2)
    with pytest.raises(ValueError, match="is of one seed, 0: leave out seed=3"):
        rosmo.load(runs / "rosmo", seed=3)


def test_what_is_no_run_or_has_no_checkpoint_is_said(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing is no run: it has no settings\.json"):
        rosmo.load(tmp_path / "nothing")
    shutil.copytree(runs / "rosmo", tmp_path / "begun", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(FileNotFoundError, match="begun has no checkpoint yet"):
        rosmo.load(tmp_path / "begun")
    assert not (tmp_path / "begun" / "checkpoints").exists()

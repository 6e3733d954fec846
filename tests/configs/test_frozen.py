"""A training that no longer asks gin, and a configuration without the places of a machine."""

import gin
import jax
import pytest

from rosmo import configs, operators

SMALL = ["representation = (8, 6)", "dynamics = (8,)", "prediction = (6,)"]


@pytest.fixture(autouse=True)
def clear():
    yield
    gin.clear_config()


def test_a_frozen_training_is_what_gin_would_build_whatever_gin_is_told_next():
    scoped = ["operator = @one/mcts", "acting = @two/mcts", "one/mcts.num_simulations = 3"]
    scoped += ["two/mcts.num_simulations = 5", "mcts.max_depth = 2", "batch_size = 24"]
    scoped += ["latent_model.value_codec = @wide/codec()", "wide/codec.bins = 30"]
    scoped += ["latent_model.reward_codec = @codec()"]
    configs.load(["bsuite/rosmo"], [*SMALL, *scoped])
    training, said = configs.frozen(), configs.said()
    gin.clear_config()
    agent = training.build_agent()
    for operator, simulations in ((agent.operator, 3), (agent.acting, 5)):
        assert operator.func is operators.get("mcts")
        assert operator.keywords == {"num_simulations": simulations, "max_depth": 2}
    assert training.learner(agent).batch_size == 24
    model = agent.init(jax.random.key(0))
    assert (model.value_codec.bins, model.reward_codec.bins) == (30, 20)
    assert (training.environment, training.num_updates) == ("catch", 15_000)
    assert (said["operator"], said["one/mcts.num_simulations"]) == ("@one/mcts", 3)
    assert "train.environment" not in said, "macros stand there by their own names"


def test_gin_is_left_as_it_was_also_by_a_failure():
    configs.load(["bsuite/rosmo"], ["batch_size = 24"])
    before = gin.config_str()
    with pytest.raises(configs.ConfigError), configs.gin_kept():
        configs.load(["bsuite/nothing"])
    assert gin.config_str() == before
    assert gin.config_is_locked()


def test_absolute_paths_become_names_and_those_that_are_not_the_datas_are_mentioned(capsys):
    long = "/home/me/" + "a folder with a long name/" * 6
    said = ["train.environment = None", f"train.data = '{long}walks.npz'", "data = '~/walks.npz'"]
    configs.load(["bsuite/rosmo"], [*said, "bootstrap = 'network'"])
    with gin.unlock_config():
        gin.bind_parameter("latent_model.network", "/home/me/net")
        gin.bind_parameter("latent_agent.regularizers", (("C:\\Users\\me\\part", "minari:a/b-v0"),))
    text = configs.portable()
    for place in ("/home", "~", "Users", "long name"):
        assert place not in text
    gin.clear_config()
    gin.parse_config(text)
    assert gin.query_parameter("train.data") == "walks.npz"
    assert gin.query_parameter("latent_agent.regularizers") == (("part", "minari:a/b-v0"),)
    mentioned = capsys.readouterr().err
    assert "latent_model.network = '/home/me/net' becomes 'net': whoever loads this needs such a" in mentioned
    assert mentioned.count("\n") == 2

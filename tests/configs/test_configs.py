import sys

import equinox as eqx
import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import configs, operators, regularizers, worlds
from rosmo.agents import BC, CQL, CRR, LatentAgent
from rosmo.configs import ConfigError

AGENTS = ("bc", "behavior", "cmpo", "cql", "crr", "gumbel", "mpo", "mzu", "mzu_q", "one_step", "regularized")
AGENTS += ("rosmo", "sampled_rosmo", "smc")
IN_WORLDS = ("combo", "mopo", "morel")
WORLDS = ("on_world", "rssm", "world", *IN_WORLDS)
ENVIRONMENTS = {"bsuite/catch": (10, 5), "bsuite/cartpole": (1, 6), "bsuite/mountain_car": (1, 3)}
GAMES = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
ENVIRONMENTS |= {f"minatar/{game}": (10, 10, planes) for game, planes in GAMES.items()}
ATARI = ("amidar", "asterix", "breakout", "frostbite", "gravitar", "jamesbond", "ms_pacman", "phoenix")
ATARI += ("pong", "qbert", "riverraid", "seaquest")  # the paper's twelve games


def build(*names: str, bind=()) -> LatentAgent:
    agent = configs.load(names, bind).build_agent()
    assert isinstance(agent, LatentAgent)
    return agent


def test_every_packaged_file_is_an_agent_or_an_environment():
    suites = ("atari", "bsuite", "minatar")
    expected = [f"{suite}/{name}" for suite in suites for name in ("base", *AGENTS, *WORLDS)]
    expected += [*ENVIRONMENTS, *(f"atari/{game}" for game in ATARI), "gym/cartpole", "minatar/rosmo_paper"]
    assert configs.packaged() == sorted(expected)


PAIRS = [(agent, environment) for agent in AGENTS for environment in ("bsuite/catch", "minatar/breakout")]
PAIRS += [("rosmo", environment) for environment in ENVIRONMENTS if ("rosmo", environment) not in PAIRS]


@pytest.mark.parametrize(("agent", "environment"), PAIRS)
def test_every_agent_and_every_environment_builds(agent, environment):
    suite = environment.partition("/")[0]
    training = configs.load([f"{suite}/{agent}", environment])
    assert training.environment == environment.removeprefix("bsuite/")
    built = training.build_agent()
    model = jax.eval_shape(built.init, jax.random.key(0))
    observation = jax.ShapeDtypeStruct((2, *ENVIRONMENTS[environment]), np.float32)
    action = jax.eval_shape(built.act, model, jax.random.key(0), observation)
    assert action.shape == (2,)
    training.learner(built)


@pytest.mark.parametrize("environment", ["bsuite/catch", "minatar/breakout", "atari/pong"])
@pytest.mark.parametrize("name", ["world", *IN_WORLDS])
def test_every_world_and_every_agent_in_one_builds(name, environment):
    suite = environment.partition("/")[0]
    if suite == "atari":
        pytest.importorskip("ale_py")
    training = configs.load([f"{suite}/{name}", environment])
    built = training.build_agent()
    params = eqx.filter_eval_shape(built.init, jax.random.key(0))
    training.learner(built)
    if name == "world":
        assert isinstance(params, worlds.World)
        assert not training.plays(built)
        return
    assert training.world_configs == (f"{suite}/world",)
    shape = ENVIRONMENTS.get(environment, (84, 84, 4))
    observation = jax.ShapeDtypeStruct((2, *shape), np.float32)
    memory = eqx.filter_eval_shape(built.initial_memory, params, 2)
    action, after = eqx.filter_eval_shape(built.act, params, jax.random.key(0), observation, memory)
    assert action.shape == (2,)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, memory)
    # The world that is trained for it is of the same sizes, whatever was said of them.
    agents_own = configs.said_of(training.model)
    world = configs.load(training.world_configs, agents_own).build_agent()
    there = eqx.filter_eval_shape(world.init, jax.random.key(0))
    here = eqx.filter_eval_shape(training.build_model(), jax.random.key(0))
    count = sum(x.size for x in jax.tree.leaves(here) if eqx.is_array(x) or hasattr(x, "size"))
    assert count == sum(x.size for x in jax.tree.leaves(there) if eqx.is_array(x) or hasattr(x, "size"))


def test_one_line_makes_mopo_of_morel():
    views = [
        configs.load(["bsuite/morel"], bind).build_agent().pessimism(np.array([1.0, 3.0], np.float32))
        for bind in ((), ["pessimism = @subtract"], ["penalty = 2.5", "halt.quantile = 1.0"])
    ]
    assert [type(view) for view in views] == [worlds.Halt, worlds.Subtract, worlds.Halt]
    assert (float(views[2].penalty), float(views[2].threshold)) == (2.5, 3.0)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_builds_for_gymnasiums_cartpole(agent):
    training = configs.load([f"bsuite/{agent}", "gym/cartpole"])
    assert (training.environment, training.spaces()) == ("gym/CartPole-v1", ((4,), 2))
    training.learner(training.build_agent())


def test_the_values_are_those_of_the_paper():
    training = configs.load(["bsuite/rosmo"])
    agent = training.build_agent()
    assert (agent.unroll_steps, agent.td_steps) == (5, 3)
    assert (agent.policy_weight, agent.value_weight) == (1.0, 0.25)
    assert agent.operator.__wrapped__ is operators.one_step
    [(regularizer, weight)] = agent.regularizers
    assert (regularizer.__wrapped__, weight) == (regularizers.behavior, 0.2)
    model = agent.init(jax.random.key(0))
    assert model.discount == pytest.approx(0.997**4, abs=1e-12)
    assert model.value_codec.bins == model.reward_codec.bins == 20
    sizes = [layer.weight.shape[1] for layer in model.networks.representation.mlp.layers]
    assert sizes == [64, 64, 32]
    assert model.networks.dynamics.from_state.weight.shape == (32, 256)
    learner = training.learner(agent)
    assert (learner.batch_size, learner.target_update_interval) == (128, 200)


def test_rosmo_on_minatar_has_the_papers_settings_but_for_those_it_names():
    papers, fast = (configs.settings([f"minatar/{name}"]) for name in ("rosmo_paper", "rosmo"))
    before, after = ({setting.name: setting.value for setting in each} for each in (papers, fast))
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert changed == {
        "roots": ("1", "6"),
        "batch_size": ("64", "16"),
        "behavior_weight": ("0.2", "1.0"),
        "target_update_interval": ("200", "50"),
    }


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_builds_for_atari(name):
    pytest.importorskip("ale_py")
    agent = configs.load([f"atari/{name}", "atari/pong"]).build_agent()
    assert agent.window >= 6


@pytest.mark.parametrize("game", ATARI)
def test_every_game_of_the_paper_builds(game, caplog):
    pytest.importorskip("ale_py")
    training = configs.load(["atari/rosmo", f"atari/{game}"])
    assert training.environment.lower() == f"atari/{game.replace('_', '')}"
    assert training.spaces()[0] == (84, 84, 4)
    assert not caplog.records


def test_the_values_on_atari_are_those_of_the_paper():
    pytest.importorskip("ale_py")
    training = configs.load(["atari/rosmo", "atari/pong"])
    agent = training.build_agent()
    assert (agent.unroll_steps, agent.td_steps, agent.policy_weight, agent.value_weight) == (5, 5, 1.0, 0.25)
    [(regularizer, weight)] = agent.regularizers
    assert (regularizer.__wrapped__, weight) == (regularizers.behavior, 0.2)
    model = jax.eval_shape(agent.init, jax.random.key(0))
    assert model.discount == pytest.approx(0.997**4, abs=1e-12)
    assert (model.value_codec.bins, model.value_codec.high) == (601, 300)
    assert len(model.networks.representation.towers[3].blocks) == 6
    assert len(model.networks.dynamics.tower.blocks) == len(model.networks.prediction.tower.blocks) == 2
    assert model.networks.prediction.policy.hidden.weight.shape == (6 * 6 * 64, 128)
    learner = training.learner(agent)
    assert (learner.batch_size, learner.target_update_interval) == (512, 200)
    optimizer = {"learning_rate": 7e-4, "weight_decay": 1e-4, "max_grad_norm": 5.0, "decay_rate": 0.1}
    for name, value in optimizer.items():
        assert gin.query_parameter(f"adamw.{name}").scoped_configurable_fn() == value
    assert configs.load(["atari/crr"]).build_agent().td_steps == 1


@pytest.mark.parametrize("suite", ["atari", "bsuite", "minatar"])
def test_crr_learns_at_the_rate_of_its_published_code(suite):
    training = configs.load([f"{suite}/crr"])
    agent = training.build_agent()
    assert agent.value_weight == 1.0
    assert training.learner(agent).target_update_interval == 100
    assert gin.query_parameter("adamw.learning_rate").scoped_configurable_fn() == 3e-4


def test_four_actions_are_sampled_on_atari():
    configs.load(["atari/sampled_rosmo"])
    assert gin.query_parameter("sampled_one_step.num_samples").scoped_configurable_fn() == 4


def test_a_search_on_atari_has_twenty_simulations():
    for name in ("mcts", "mcts_q"):
        configs.load([f"atari/{'mzu' if name == 'mcts' else 'mzu_q'}"])
        assert gin.query_parameter(f"{name}.num_simulations").scoped_configurable_fn() == 20


def test_minatar_has_the_parts_of_bsuite_and_a_network_for_images():
    agent = build("minatar/rosmo_paper", "minatar/seaquest", bind=["channels = (4, 8)", "prediction = (24,)"])
    [(regularizer, weight)] = agent.regularizers
    assert (regularizer.__wrapped__, weight) == (regularizers.behavior, 0.2)
    model = agent.init(jax.random.key(0))
    assert [conv.linear.weight.shape[1] for conv in model.networks.representation.torso.convs] == [4, 8]
    assert model.networks.prediction.policy.weight.shape == (24, 6)


def test_minatar_has_the_value_targets_of_atari():
    for name in ("rosmo", "mzu", "crr", "cql"):
        steps = [configs.load([f"{suite}/{name}"]).build_agent().td_steps for suite in ("atari", "minatar")]
        assert steps == ([1, 1] if name in ("crr", "cql") else [5, 5])


@pytest.mark.parametrize("suite", ["atari", "bsuite", "minatar"])
def test_windows_may_have_several_roots(suite):
    window = configs.load([f"{suite}/one_step"]).build_agent().window
    agent = configs.load([f"{suite}/mzu"], ["roots = 8"]).build_agent()
    assert isinstance(agent, LatentAgent)
    assert (agent.roots, agent.window) == (8, window + 7)


def test_the_baselines_take_what_all_agents_share():
    crr = configs.load(["bsuite/crr"], ["weighting = 'binary'", "td_steps = 3", "bins = 30"]).build_agent()
    assert isinstance(crr, CRR)
    assert (crr.weighting, crr.td_steps, crr.window) == ("binary", 3, 9)
    assert crr.init(jax.random.key(0)).reward_codec.bins == 30
    cql = configs.load(["bsuite/cql"], ["alpha = 4.0"]).build_agent()
    assert isinstance(cql, CQL)
    assert (cql.alpha, cql.td_steps) == (4.0, 1)
    bc = configs.load(["bsuite/bc"], ["positions = 2"]).build_agent()
    assert isinstance(bc, BC)
    assert bc.window == 2


def test_one_line_swaps_a_part():
    assert build("bsuite/rosmo", bind=["operator = @mcts"]).operator.__wrapped__ is operators.mcts
    assert build("bsuite/rosmo", bind=["regularizers = ()"]).regularizers == ()
    exponential = build("bsuite/rosmo", bind=["regularizers = ((@behavior_exp, 0.5),)"]).regularizers
    assert exponential[0][0].__wrapped__ is regularizers.behavior_exp
    model = build("bsuite/rosmo", bind=["dynamics = (16,)", "bins = 30"]).init(jax.random.key(0))
    assert model.networks.dynamics.from_state.weight.shape == (32, 16)
    assert model.value_codec.bins == 30


def test_a_setting_reaches_the_part_that_is_called():
    agent = build("bsuite/mzu", bind=["num_simulations = 2"])
    model = agent.init(jax.random.key(0))
    root = model.root(model.encode(jnp.zeros((1, 10, 5))))
    from rosmo.model import recurrent_fn

    improvement = agent.operator(model, jax.random.key(0), root, recurrent_fn)
    assert improvement.search_tree.node_visits.shape == (1, 3)  # the root and two simulations


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("operater = @mcts", "nothing uses 'operater'. Did you mean 'operator'"),
        ("operator = @mctss", "there is no part called 'mctss'. Did you mean 'mcts'"),
        ("final_episodes = 5", "nothing uses 'final_episodes'. Did you mean 'train.final_episodes'?"),
        ("adamw.learning_rat = 1.0", "adamw has no setting 'learning_rat'. Did you mean 'learning_rate'"),
        ("adam.learning_rate = 1.0", "there is no part called 'adam'. Did you mean 'adamw'"),
        ("train.num_updates = %updates", "%updates is used, but nothing says what updates is"),
        ("here/train.num_updates = 3", "nothing refers to the scope of here/"),
        ("num_updates = ", "binding 'num_updates = ': "),
        ("num_updates = 0", "num_updates must be a whole number of at least 1, got 0"),
        ("train.eval_every = 1", "eval_every must be a multiple of log_every"),
        ("environment = 'cach'", "there is no environment 'cach'. Did you mean 'catch'"),
    ],
)
def test_a_typo_fails_before_any_work_with_the_nearest_names(binding, message):
    with pytest.raises(ConfigError) as error:
        configs.load(["bsuite/rosmo"], [binding])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("agent", "binding", "unused"),
    [
        ("bc", "operator = @mcts", "operator"),
        ("rosmo", "mcts.num_simulations = 8", "mcts"),
        ("rosmo", "operators.mcts.num_simulations = 8", "mcts"),
        ("cql", "unroll_steps = 3", "unroll_steps"),
    ],
)
def test_a_binding_that_would_change_nothing_is_refused(agent, binding, unused):
    with pytest.raises(ConfigError, match=f"would change nothing: .* uses '{unused}'"):
        configs.load([f"bsuite/{agent}"], [binding])


def test_a_binding_may_say_what_another_one_then_replaces():
    training = configs.load(["bsuite/rosmo"], ["data = 'here'", "train.data = '/from/anywhere'"])
    assert training.data == "/from/anywhere"


def test_an_unknown_file_lists_what_there_is(tmp_path):
    with pytest.raises(ConfigError, match=r"no configuration 'bsuite/rosmoo'.*Did you mean 'bsuite/rosmo'"):
        configs.load(["bsuite/rosmoo"])


def test_a_file_of_ones_own_builds_on_packaged_ones(tmp_path):
    file = tmp_path / "mine.gin"
    file.write_text('include "bsuite/rosmo.gin"\nregularizers = ()\nnum_updates = 77\n')
    training = configs.load([str(file)])
    assert training.num_updates == 77
    assert training.build_agent().regularizers == ()


def test_parts_of_ones_own_are_imported(tmp_path, monkeypatch):
    (tmp_path / "operator.py").write_text(  # Python has a module of that name
        "import rosmo.regularizers as r\n"
        "@r.register('no_penalty')\n"
        "def no_penalty(positions, *, scale=2.0):\n"
        "    '''Adds nothing.'''\n"
        "    return 0 * positions.value\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(regularizers.registry, "_parts", dict(regularizers.registry._parts))
    bind = ["regularizers = ((@no_penalty, 1.0),)", "no_penalty.scale = 3.0"]
    training = configs.load(["bsuite/rosmo"], bind, [str(tmp_path / "operator.py")])
    assert training.build_agent().regularizers[0][0].__name__ == "no_penalty"
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        configs.load(["bsuite/rosmo"], imports=["no_such_module"])


def test_a_run_can_be_built_from_the_text_it_wrote_down():
    import gin

    configs.load(["bsuite/rosmo"], ["regularizers = ()"])  # behavior_weight is then of no use
    assert configs.load(text=gin.config_str()).build_agent().regularizers == ()
    configs.load(["bsuite/mzu", "bsuite/cartpole"], ["num_simulations = 3"])
    training = configs.load(text=gin.config_str())
    assert training.environment == "cartpole"
    assert gin.query_parameter("mcts.num_simulations") is not None


def test_a_setting_that_stands_for_itself_is_one_sentence():
    with pytest.raises(ConfigError, match="a setting stands for itself"):
        configs.load(["bsuite/rosmo", "bsuite/catch"], ["dynamics = %dynamics"])

import pytest

from rosmo import agents, networks, operators, regularizers, worlds
from rosmo.registry import Registry


@pytest.fixture
def registry():
    registry = Registry("operator", requires=("params", "root"))

    @registry.register("one_step")
    def one_step(params, root):
        return params, root

    return registry


def test_get_returns_the_very_function(registry):
    def mine(params, root, extra=1):
        return params, root, extra

    assert registry.register("mine")(mine) is mine
    assert registry.get("mine") is mine
    assert registry.names() == ("mine", "one_step")


def test_refuses_a_duplicate_and_keeps_the_first(registry):
    first = registry.get("one_step")
    with pytest.raises(ValueError, match="already operator 'one_step'"):
        registry.register("one_step")(lambda params, root: None)
    assert registry.get("one_step") is first


@pytest.mark.parametrize("part", [3, "one_step", lambda params: None, lambda positions: None])
def test_refuses_what_is_not_of_its_kind(registry, part):
    with pytest.raises(TypeError, match="bad"):
        registry.register("bad")(part)
    assert "bad" not in registry.names()


def test_accepts_a_wrapper_that_passes_everything_on(registry):
    registry.register("wrapped")(lambda *args, **kwargs: None)
    with pytest.raises(TypeError, match="not of the kind"):
        registry.register("keywords_alone_promise_nothing")(lambda **settings: None)


@pytest.mark.parametrize("name", ["", "two words", "2nd"])
def test_refuses_a_name_that_no_configuration_could_write(registry, name):
    with pytest.raises(TypeError, match="by a name of letters, digits"):
        registry.register(name)


def test_refuses_the_decorator_without_a_name(registry):
    with pytest.raises(TypeError):
        registry.register(lambda params, root: None)


def test_unknown_name_lists_the_nearest_and_all(registry):
    with pytest.raises(KeyError, match=r"no operator 'onestep'.*mean 'one_step'\?.*There are: one_step"):
        registry.get("onestep")
    with pytest.raises(KeyError, match="There are: one_step"):
        registry.get("zzz")


def test_every_kind_of_part_has_its_names():
    searches = ("gumbel", "mcts", "mcts_q", "smc")
    look_aheads = ("cmpo", "mpo", "one_step", "regularized", "sampled_one_step")
    assert operators.names() == tuple(sorted((*searches, *look_aheads, "prior")))
    assert regularizers.names() == ("behavior", "behavior_exp")
    assert networks.names() == ("conv", "mlp", "resnet")
    assert worlds.names() == ("latent", "rssm")
    latent = ("behavior", "mzu", "mzu_q", "one_step", "rosmo", "sampled_rosmo")
    latent += ("cmpo", "gumbel", "mpo", "regularized", "smc")
    assert agents.names() == tuple(sorted((*latent, "bc", "cql", "crr", "combo", "mopo", "morel")))


def test_kinds_refuse_each_others_parts():
    with pytest.raises(TypeError, match="not of the kind 'operator'"):
        operators.register("cloning")(regularizers.behavior)
    with pytest.raises(TypeError, match="not of the kind 'regularizer'"):
        regularizers.register("search")(operators.mcts)
    with pytest.raises(TypeError, match="not of the kind 'network'"):
        networks.register("agent")(agents.rosmo)
    with pytest.raises(TypeError, match="not of the kind 'agent'"):
        agents.register("net")(networks.mlp)

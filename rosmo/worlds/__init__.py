"""World models, learned before an agent, and the agents in them: add one as a file here, or from anywhere.

The agents are in the registry of agents too, once this room is imported.
"""

from rosmo.networks.frozen import Frozen
from rosmo.worlds.acting import StandsOnWorld
from rosmo.worlds.base import Imagined, World, align, filter_window, registry
from rosmo.worlds.combo import COMBO
from rosmo.worlds.ensembles import disagreement
from rosmo.worlds.latent import LatentWorld, latent
from rosmo.worlds.learning import WorldModel
from rosmo.worlds.pessimistic import Halt, Pessimistic, Subtract, halt, subtract, uncertainties
from rosmo.worlds.ppo import WorldPPO, mopo, morel
from rosmo.worlds.rollouts import Rollout, as_trajectory, rollout
from rosmo.worlds.rssm import RSSM, rssm

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "COMBO",
    "RSSM",
    "Frozen",
    "Halt",
    "Imagined",
    "LatentWorld",
    "Pessimistic",
    "Rollout",
    "StandsOnWorld",
    "Subtract",
    "World",
    "WorldModel",
    "WorldPPO",
    "align",
    "as_trajectory",
    "disagreement",
    "filter_window",
    "get",
    "halt",
    "latent",
    "mopo",
    "morel",
    "names",
    "register",
    "registry",
    "rollout",
    "rssm",
    "subtract",
    "uncertainties",
]

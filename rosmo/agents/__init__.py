"""Agents: add one as a file here, or register one of your own from anywhere."""

from rosmo.agents.base import Agent, CachesTargets, Improves, Remembers, Trained, acts, registry
from rosmo.agents.bc import BC
from rosmo.agents.cql import CQL
from rosmo.agents.crr import CRR
from rosmo.agents.fqe import FQE, JudgedSteps
from rosmo.agents.latent import LatentAgent
from rosmo.agents.ppo import PPOSettings, annealed_adam, gae, ppo_loss
from rosmo.agents.presets import (
    behavior,
    cmpo,
    gumbel,
    mpo,
    mzu,
    mzu_q,
    one_step,
    regularized,
    rosmo,
    sampled_rosmo,
    smc,
)
from rosmo.agents.trained import Player, TrainedAgent
from rosmo.types import window_keys

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "BC",
    "CQL",
    "CRR",
    "FQE",
    "Agent",
    "CachesTargets",
    "Improves",
    "JudgedSteps",
    "LatentAgent",
    "PPOSettings",
    "Player",
    "Remembers",
    "Trained",
    "TrainedAgent",
    "acts",
    "annealed_adam",
    "behavior",
    "cmpo",
    "gae",
    "get",
    "gumbel",
    "mpo",
    "mzu",
    "mzu_q",
    "names",
    "one_step",
    "ppo_loss",
    "register",
    "registry",
    "regularized",
    "rosmo",
    "sampled_rosmo",
    "smc",
    "window_keys",
]

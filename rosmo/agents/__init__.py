"""Agents: add one as a file here, or register one of your own from anywhere."""

from rosmo.agents.base import Agent, CachesTargets, registry, window_keys
from rosmo.agents.bc import BC
from rosmo.agents.cql import CQL
from rosmo.agents.crr import CRR
from rosmo.agents.latent import LatentAgent
from rosmo.agents.presets import behavior, mzu, mzu_q, one_step, rosmo, sampled_rosmo

register = registry.register
get = registry.get
names = registry.names

__all__ = [
    "BC",
    "CQL",
    "CRR",
    "Agent",
    "CachesTargets",
    "LatentAgent",
    "behavior",
    "get",
    "mzu",
    "mzu_q",
    "names",
    "one_step",
    "register",
    "registry",
    "rosmo",
    "sampled_rosmo",
    "window_keys",
]

"""The BSuite tasks of the paper, as bsuite's experiments catch/0, cartpole/0 and mountain_car/0 make them.

Those experiments take every default and draw a seed; here the seed is given. The time limits of cartpole and
mountain_car (1,000 steps) end an episode with discount 0, and time is in the observation: they are
terminations. The reference scores are the paper's (appendix "BSuite Dataset"); a
uniform policy measured over thousands of episodes has −0.59 in catch and 80.4 in cartpole.
"""

import importlib
from types import ModuleType

import dm_env

from rosmo.envs.base import Reference, references, registry

references["catch"] = Reference(random=-0.66, online=1.0)
references["cartpole"] = Reference(random=64.83, online=1001.0)
references["mountain_car"] = Reference(random=-1000.0, online=-102.16)


@registry.register("catch")
def catch(seed: int) -> dm_env.Environment:
    """A paddle under a ball that falls for 9 steps: +1 if it is caught, −1 if not."""
    return _bsuite("catch").Catch(seed=seed)


@registry.register("cartpole")
def cartpole(seed: int) -> dm_env.Environment:
    """A pole to balance on a cart, +1 per step, for up to 10 seconds (1,001 steps)."""
    return _bsuite("cartpole").Cartpole(seed=seed)


@registry.register("mountain_car")
def mountain_car(seed: int) -> dm_env.Environment:
    """A car too weak for its hill, −1 per step, for up to 1,000 steps."""
    return _bsuite("mountain_car").MountainCar(seed=seed)


def _bsuite(module: str) -> ModuleType:
    try:
        return importlib.import_module(f"bsuite.environments.{module}")
    except ImportError as error:
        raise ImportError(f'environment {module!r} needs bsuite: pip install "rosmo[run]"') from error

"""What a training is: its environment, data, agent and learner, for how long, and whether they fit."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import jax
import numpy as np

from rosmo import envs
from rosmo.agents import Agent, Remembers, Trained, acts
from rosmo.data import DataSet, FrameStore, StoreSampler
from rosmo.data.episodes import held_out_episodes, take_episodes
from rosmo.data.opening import count_actions
from rosmo.data.windows import checked_steps
from rosmo.evaluate import Evaluator
from rosmo.learner import Learner
from rosmo.model import latent_model
from rosmo.runs.criteria import criteria_of, refuse_criteria, refuse_unselectable
from rosmo.types import refuse_counts, refuse_numbers
from rosmo.worlds import WorldModel


@dataclasses.dataclass(frozen=True)
class Training:
    """What to train, on what, and for how long.

    Args:
        environment: registered name; the agent is evaluated there, without noise. Without one, observations
            and actions are those of the data, and held-out episodes say how good the agent is.
        agent: builds the agent from what builds its model.
        model: builds a model from a key, an observation shape and a number of actions.
        learner: builds the learner from an agent.
        noise: probability that an action was replaced while the data was collected.
        data: RLDS directory, store of frames, .npz, .hdf5 or .parquet file, or `minari:ID`; where not given,
            data of `environment` is collected once and kept.
        data_seed: seed of the collection, and of the choice of episodes.
        data_fraction: share of the episodes to train on.
        num_updates: updates of the whole run.
        max_seconds: of training, evaluations apart, after which a run ends at its next row, however many
            updates that took. A run on one core counts the time that it had of it.
        log_every: updates between two rows of metrics; a run that is told to stop goes on to the next.
        eval_every: updates between two evaluations; a multiple of `log_every`.
        eval_episodes: episodes of an evaluation.
        checkpoint_every: updates between two checkpoints; a multiple of `log_every`.
        keep: how many of the newest checkpoints are kept, or 'all'.
        select_by: what scores the policy at each checkpoint, one or several of 'fqe', 'dr', 'wis', 'model',
            'td_error' and 'return'; the best by each is kept too, and scored at the end.
        select_updates: of each Q that a policy is scored by.
        device_bytes: a data set up to this size is put on the device; a larger one stays in host memory.
        final_episodes: episodes that the trained agent is scored by.
        held_out: share of the episodes that are not trained on, without an environment to play in or of what
            does not act.
        observation_shape: without an environment, of an observation (None: that of the data).
        num_actions: without an environment, that the agent chooses among (None: as the data tells).
        world: folder of the run of a world, for an agent that acts in one; where not given, one is trained
            once and kept.
        world_configs: the configurations that it is trained by there.
        world_bindings: gin bindings on top of them.
    """

    environment: str | None
    agent: Callable[..., Trained]
    model: Callable[..., Any] = latent_model
    learner: Callable[..., Learner] = Learner
    noise: float = 0.0
    data: str | None = None
    data_seed: int = 0
    data_fraction: float = 1.0
    num_updates: int = 15_000
    max_seconds: float | int | None = None
    log_every: int = 1_000
    eval_every: int = 1_000
    eval_episodes: int = 32
    checkpoint_every: int = 1_000
    keep: int | Literal["all"] = 2
    select_by: str | tuple[str, ...] | None = None
    select_updates: int = 5_000
    device_bytes: int = 2**31
    final_episodes: int = 100
    held_out: float = 0.1
    observation_shape: tuple[int, ...] | None = None
    num_actions: int | None = None
    world: str | None = None
    world_configs: tuple[str, ...] = ()
    world_bindings: tuple[str, ...] = ()

    def __post_init__(self):
        counts = ("num_updates", "log_every", "eval_every", "eval_episodes", "checkpoint_every")
        refuse_counts(**{name: getattr(self, name) for name in (*counts, "final_episodes")})
        refuse_counts(select_updates=self.select_updates)
        if self.keep != "all":
            refuse_counts(keep=self.keep)
        refuse_counts(0, data_seed=self.data_seed)
        refuse_criteria(self)
        if self.max_seconds is not None:
            refuse_numbers(above=True, max_seconds=self.max_seconds)
        refuse_numbers(0, 1, noise=self.noise)
        refuse_numbers(0, 1, above=True, data_fraction=self.data_fraction)
        for name in ("eval_every", "checkpoint_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(
                    f"{name} must be a multiple of log_every, got {getattr(self, name)} and {self.log_every}"
                )
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share of the episodes between 0 and 1, got {self.held_out}")
        if self.environment is not None:
            envs.get(self.environment)
        elif self.data is None:
            raise ValueError(
                "without an environment there is nothing to collect data in: name a data set by data"
            )

    @property
    def criteria(self) -> tuple[str, ...]:
        """What each checkpoint is scored by."""
        return criteria_of(self.select_by)

    @property
    def label(self) -> str:
        """What is trained on, in a word: the environment, or else the name of the data."""
        return self.environment or Path(str(self.data)).stem

    def build_agent(self) -> Trained:
        """Returns the agent for the observations and actions of the environment, or of the data."""
        return self.agent(self.build_model())

    def build_acting_agent(self) -> Agent | Remembers:
        """Returns the agent, if it is one that acts."""
        agent = self.build_agent()
        if not acts(agent):
            raise ValueError(
                f"{type(agent).__name__} does not act, as a world model does not: name the run of an agent"
            )
        return cast(Agent | Remembers, agent)

    def build_model(self) -> Callable[..., Any]:
        """Returns what builds the model from a key, for the observations and actions of the training."""
        shape, actions = self.spaces()
        return functools.partial(self.model, observation_shape=shape, num_actions=actions)

    def spaces(self) -> tuple[tuple[int, ...], int]:
        """Returns the shape of an observation and the number of actions, of the environment or the data."""
        if self.environment is None:
            if self.observation_shape is None or self.num_actions is None:
                raise ValueError(
                    "without an environment the data says what observations and actions are, and it is not "
                    "read here: give train.observation_shape and train.num_actions"
                )
            return self.observation_shape, self.num_actions
        environment = envs.make(self.environment, seed=0)
        return envs.observation_shape(environment), envs.number_of_actions(environment)

    def with_spaces_of(self, steps: DataSet) -> "Training":
        """Returns the same training with the spaces of its data, as far as nothing else says them."""
        if self.environment is not None:
            return self
        shape = _shape_of(steps) if self.observation_shape is None else self.observation_shape
        count = count_actions(self.data, steps) if self.num_actions is None else self.num_actions
        return dataclasses.replace(self, observation_shape=shape, num_actions=count)

    def plays(self, agent: Trained) -> bool:
        """Whether the agent is scored by playing: there is an environment, and it acts."""
        return self.environment is not None and acts(agent)

    def divided(self, agent: Trained, steps: DataSet) -> tuple[DataSet, DataSet | None]:
        """Returns what to train on and, unless the agent is to play, the episodes that are held out."""
        if (parts := self._parted(agent, steps)) is None:
            return steps, None
        kept, held = parts
        if isinstance(steps, FrameStore):
            return steps.taking(kept), steps.taking(held)
        return take_episodes(steps, kept), take_episodes(steps, held)

    def _parted(self, agent: Trained, steps: DataSet) -> tuple[np.ndarray, np.ndarray] | None:
        """The numbers of the episodes to train on and of those that are held out, if any are to be."""
        if self.plays(agent):
            return None
        count = steps.num_episodes if isinstance(steps, FrameStore) else int(np.sum(steps.is_last))
        return held_out_episodes(count, self.held_out, self.data_seed)

    def check(self, agent: Trained, steps: DataSet) -> None:
        """Refuses a data set that this cannot be trained on."""
        shape, actions = self.spaces()
        stored = isinstance(steps, FrameStore)
        if (found := _shape_of(steps)) != tuple(shape):
            named = f"those of {self.environment!r}" if self.environment else "train.observation_shape is"
            remedy = "train on data of the same environment" if self.environment else "leave that setting out"
            raise ValueError(
                f"the data set's observations have the shape {list(found)}, {named} {list(shape)}: {remedy}"
            )
        if isinstance(agent, WorldModel) and not stored:
            agent.check(steps.observation)
        refuse_unselectable(self, agent, steps)
        settings = {"window": agent.window, "num_actions": actions}
        StoreSampler(steps, **settings) if stored else checked_steps(steps, **settings)

    def rehearse(self, learner: Learner, steps: DataSet) -> None:
        """Traces an update, so that a setting that cannot work fails before anything is made."""
        self.check(learner.agent, steps)
        self._parted(learner.agent, steps)
        batch, window = learner.batch_size, learner.agent.window
        if isinstance(steps, FrameStore):
            one = steps.read(np.zeros(1, np.int64), window)
        else:
            one = jax.tree.map(lambda x: np.broadcast_to(x[:1], (1, window, *x.shape[1:])), steps)
        learner.trace(jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), one))

    def build_evaluator(
        self, agent: Agent | Remembers, episodes: int | None = None, *, discount: float = 1.0
    ) -> Evaluator:
        """Returns what plays the agent in the environment; a discount makes its returns discounted ones."""
        name = self.environment
        if name is None:
            raise ValueError(
                f"the agent was trained on {self.data} without an environment: there is none to play in"
            )

        def make(seed: int) -> Any:
            return envs.make(name, seed=seed)

        episodes = self.eval_episodes if episodes is None else episodes
        return Evaluator(agent, make, episodes=episodes, discount=discount)


def _shape_of(steps: DataSet) -> tuple[int, ...]:
    """The shape of one observation of a data set."""
    return tuple(steps.observation_shape if isinstance(steps, FrameStore) else steps.observation.shape[1:])

"""The runs of an experiment, as the tables and figures need them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from rosmo.costs.compute import Compute


class Key(NamedTuple):
    """A combination that several seeds are run of."""

    method: str
    environment: str
    setting: str


class Evaluation(NamedTuple):
    """Scores on the way: the mean return after some updates and seconds, and its normalised score."""

    updates: int
    score: float
    normalised: float | None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """One finished run.

    Args:
        key: what it is a run of.
        seed: of the run.
        updates: that it took.
        sampled: the mean return at the end, by sampled actions.
        greedy: the mean return at the end, by greedy actions.
        normalised: the normalised score of `sampled`, where the environment has reference scores.
        evaluations: scores on the way, by sampled actions.
        seconds_per_update: as measured in the run, where it was.
        seconds: of all of its training, evaluations apart.
        selected: the checkpoints that were the best on the way, by the criterion.
    """

    key: Key
    seed: int
    updates: int
    sampled: float
    greedy: float
    normalised: float | None
    evaluations: tuple[Evaluation, ...]
    seconds_per_update: float | None
    seconds: float | None = None
    selected: Mapping[str, "Selected"] = dataclasses.field(default_factory=dict)


class Selected(NamedTuple):
    """The best checkpoint of a run by some criterion: after which update, and the return of its policy."""

    updates: int
    sampled: float
    normalised: float | None


class FirstStage(NamedTuple):
    """The training of the world that an agent acts in: what came before the agent's own."""

    updates: int
    seconds: float
    flops: int


class Missing(NamedTuple):
    """A run that is not finished, and the updates that it has taken."""

    key: Key
    seed: int
    updates: int


@dataclasses.dataclass(frozen=True)
class Results:
    """What came out of an experiment so far.

    Args:
        name: of the experiment.
        about: what it shows.
        axis: what its settings vary.
        figure: its main figure, "curves", "bars" or "lines".
        methods: in the order that tables and figures show them.
        environments: likewise.
        settings: likewise.
        paper: `[mean, standard deviation]` by environment, setting and method.
        paper_note: what the paper's figures are of.
        runs: those that are finished.
        missing: those that are not.
        compute: the work of an update of each combination that has a finished run.
        departed: folders of finished runs whose configuration is not that of the experiment.
        worlds: the first stage of each combination that has one, where its run is still there.
    """

    name: str
    about: str
    axis: str
    figure: str
    methods: tuple[str, ...]
    environments: tuple[str, ...]
    settings: tuple[str, ...]
    paper: Mapping[str, Any]
    paper_note: str
    runs: tuple[Run, ...]
    missing: tuple[Missing, ...]
    compute: Mapping[Key, Compute]
    departed: tuple[str, ...] = ()
    worlds: Mapping[Key, FirstStage] = dataclasses.field(default_factory=dict)

    def of(self, method: str, environment: str, setting: str) -> list[Run]:
        """Returns the finished runs of a combination, by seed."""
        key = Key(method, environment, setting)
        return sorted((run for run in self.runs if run.key == key), key=lambda run: run.seed)

    def scored_environments(self) -> list[str]:
        """Returns the environments that scores can be normalised in."""
        scored = {run.key.environment for run in self.runs if run.normalised is not None}
        return [environment for environment in self.environments if environment in scored]

    def complete(self, method: str, setting: str) -> list[list[Run]]:
        """Returns, for each seed that is finished in every scored environment, its runs in all of them."""
        columns = [
            {run.seed: run for run in self.of(method, environment, setting)}
            for environment in self.scored_environments()
        ]
        seeds = sorted(set.intersection(*map(set, columns))) if columns else []
        return [[column[seed] for column in columns] for seed in seeds]


def normalised_matrix(rows: Sequence[Sequence[Run | Selected]]) -> Float[np.ndarray, "seeds environments"]:
    """Returns the normalised scores of complete seeds, as rliable takes them."""
    return np.array([[run.normalised for run in row] for row in rows], np.float64)

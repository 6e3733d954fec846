"""Training states on disk, through Orbax."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import equinox as eqx
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as preservation

from rosmo.learner import TrainState
from rosmo.learner.state import not_finite
from rosmo.runs.damage import first_line
from rosmo.types import is_array


class _Chosen(preservation.PreservationPolicy):
    """Keeps the checkpoints of some steps."""

    steps: frozenset[int] = frozenset()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        return [checkpoint.step in self.steps for checkpoint in checkpoints]


class Checkpoints:
    """The latest states of a run, saved in the background; one cut off while being written is not seen.

    Args:
        directory: where they are.
        keep: how many of the newest to keep when another is saved, or "all".
    """

    def __init__(self, directory: Path, *, keep: int | Literal["all"] = 2):
        self._chosen = _Chosen()
        newest = preservation.LatestN(None if keep == "all" else keep)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation.AnyPreservationPolicy([newest, self._chosen]),
            enable_async_checkpointing=True,
        )
        self._directory = directory.absolute()
        if self._directory.exists() and not self._directory.is_dir():
            raise NotADirectoryError(f"{directory} is no directory of checkpoints: move it away")
        self._manager = ocp.CheckpointManager(self._directory, options=options)

    @property
    def latest(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return self._manager.latest_step()

    @property
    def steps(self) -> list[int]:
        """The steps of all complete checkpoints, in order."""
        return sorted(self._manager.all_steps())

    def save(self, state: TrainState, *, chosen: Iterable[int] = ()) -> None:
        """Saves a state under its step; returns as soon as the arrays are copied.

        Args:
            state: of the training.
            chosen: steps of checkpoints that are kept however old they are.
        """
        self._chosen.steps = frozenset(chosen)
        arrays = eqx.filter(state, eqx.is_array)
        self._manager.save(int(state.step), args=ocp.args.StandardSave(arrays))

    def restore(self, like: TrainState, step: int | None = None) -> TrainState:
        """Returns the state of a step (the newest where not given), laid out over devices as `like` is.

        `like` may hold the shapes of arrays in their place.
        """
        step = self.latest if step is None else step
        if step is None:
            raise FileNotFoundError(
                f"there is no complete checkpoint in {self._directory}: go on with the run until it has "
                "saved one"
            )
        if step not in self.steps:
            kept = ", ".join(map(str, self.steps)) or "none"
            raise FileNotFoundError(
                f"there is no checkpoint of update {step} in {self._directory}; there are: {kept}"
            )
        arrays, static = eqx.partition(like, is_array)
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, arrays)
        try:
            restored = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except Exception as error:
            raise ValueError(
                f"the checkpoint {self._directory / str(step)} cannot be restored ({first_line(error)}): it "
                "was damaged, or made with other network settings; delete it to go on from the one before"
            ) from error
        if (held := int(cast(TrainState, restored).step)) != step:
            raise ValueError(
                f"{self._directory / str(step)} holds the state after update {held}: it was renamed; give it "
                f"the name {held} again, or delete it"
            )
        bad = jax.device_get(jax.jit(not_finite)(restored))
        if spoiled := [name for name, is_bad in bad.items() if is_bad]:  # as earlier versions could save one
            raise ValueError(
                f"{self._directory / str(step)} holds a state that is not finite ({', '.join(spoiled)}): no "
                "update brings it back; delete it to go on from the one before"
            )
        return eqx.combine(restored, static)

    def close(self) -> None:
        """Waits until everything is on disk, and for every thread, even where a save has failed.

        One that is left would meet the end of the process, and have the last word of what is said of it.
        """
        try:
            self._manager.wait_until_finished()
        finally:
            with contextlib.suppress(Exception):  # the very failure again
                self._manager.close()

"""Training states on disk, through Orbax."""

from pathlib import Path

import equinox as eqx
import jax
import orbax.checkpoint as ocp

from rosmo.learner import TrainState


class Checkpoints:
    """The latest states of a run, saved in the background; one cut off while being written is not seen."""

    def __init__(self, directory: Path, *, keep: int = 2):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True)
        self._directory = directory.absolute()
        self._manager = ocp.CheckpointManager(self._directory, options=options)

    @property
    def latest(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return self._manager.latest_step()

    def save(self, state: TrainState) -> None:
        """Saves a state under its step; returns as soon as the arrays are copied."""
        arrays = eqx.filter(state, eqx.is_array)
        self._manager.save(int(state.step), args=ocp.args.StandardSave(arrays))

    def restore(self, like: TrainState, step: int | None = None) -> TrainState:
        """Returns the state of a step (the newest where not given), laid out over devices as `like` is."""
        step = self.latest if step is None else step
        if step is None:
            raise FileNotFoundError(f"there is no complete checkpoint in {self._directory}")
        if step not in (steps := sorted(self._manager.all_steps())):
            kept = ", ".join(map(str, steps)) or "none"
            raise FileNotFoundError(
                f"there is no checkpoint of update {step} in {self._directory}; there are: {kept}"
            )
        arrays, static = eqx.partition(like, eqx.is_array)
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, arrays)
        try:
            restored = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except Exception as error:
            raise ValueError(
                f"the checkpoint {self._directory / str(step)} cannot be restored ({_first_line(error)}): it "
                "was damaged, or made with other network settings; delete it to go on from the one before"
            ) from error
        return eqx.combine(restored, static)

    def close(self) -> None:
        """Waits until everything is on disk."""
        self._manager.wait_until_finished()
        self._manager.close()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

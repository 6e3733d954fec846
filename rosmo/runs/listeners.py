"""Where rows of metrics go beside the table of a run."""

from collections.abc import Callable
from pathlib import Path


def tensorboard(folder: Path) -> Callable[[dict], None]:
    """Returns what writes rows as TensorBoard events."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(row: dict) -> None:
        for name, value in row.items():
            if name != "step":
                writer.add_scalar(name, value, row["step"])
        writer.flush()

    return write


def wandb(project: str, folder: Path) -> Callable[[dict], None]:
    """Returns what logs rows to Weights & Biases; a resumed run goes on in the same place there."""
    try:
        import wandb as client  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError('--wandb needs its client: pip install "rosmo[wandb]"') from error
    name = "-".join(folder.resolve().parts[-2:])
    run = client.init(project=project, id=name, name=name, dir=str(folder), resume="allow")
    return lambda row: run.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])

"""The table of docs/pod.md: Atari at the paper's setting, compiled for TPUs that are not here.

    pip install -e '.[tpu]' && python -m benchmarks.tpu_table [--keep runs/tpu] [--chips v3 v5e]

Batch 512, 601 bins, 18 actions, 5 TD steps, MZU with 20 simulations. Each cell compiles for minutes in a
process of its own and is kept: a second call goes on with what is missing. A compiler that fails is kept too;
† marks what it could only compile with less fusion.
"""

import argparse
import json
from pathlib import Path

import gin

from rosmo import configs
from rosmo.commands.compile import in_child

TOPOLOGIES = {"v3": "v3:2x2", "v4": "v4:2x2x1", "v5e": "v5e:2x4", "v5p": "v5p:2x2x1"}
NAMES = {"v3": "v3-8", "v4": "v4-8", "v5e": "v5e-8", "v5p": "v5p-8"}
UPDATES = 200_000
SETTING = (
    "environment = 'atari_shapes'",
    "network = @networks.resnet",
    "bins = 601",
    "batch_size = 512",
    "td_steps = 5",
)


def ask(chip: str, agent: str, dtype: str) -> dict:
    """What the compiler is asked for."""
    imports = [str(Path(__file__).with_name("atari_shapes.py"))]
    bindings = [*SETTING, f"dtype = '{dtype}'", *(["num_simulations = 20"] if agent == "mzu" else [])]
    configs.load([f"bsuite/{agent}"], bindings, imports)
    return {"text": gin.config_str(), "imports": imports, "mesh": None, "topology": TOPOLOGIES[chip]}


def compiled(keep: Path, chip: str, agent: str, dtype: str) -> dict:
    """The report of a cell, kept or new."""
    path = keep / f"{chip}-{agent}-{dtype}.json"
    if not path.exists():
        try:
            report = in_child(ask(chip, agent, dtype), timeout=3 * 3_600)
        except OSError as error:
            report = {"error": str(error)}
        path.write_text(json.dumps(report, indent=2))
    return json.loads(path.read_text())


def row(chip: str, agent: str, dtype: str, report: dict) -> str:
    """A cell as a line of the table."""
    cells = [NAMES[chip], {"rosmo": "ROSMO", "mzu": "MZU (20)"}[agent], dtype]
    if "error" in report:
        return "| " + " | ".join([*cells, report["error"]]) + " |" * 7
    needed = report["arguments"] + report["temporaries"]
    found = "; ".join(
        f"{c['count']} {c['kind']}, {c['bytes'] / 2**20:,.1f} MiB" for c in report["collectives"]
    )
    cells += [
        f"{needed / 2**30:.2f} of {report['memory'] / 2**30:.0f} GiB, "
        + ("fits" if report["fits"] else "no"),
        f"{report['temporaries'] / 2**30:.2f} GiB",
        f"{report['flops'] / 1e9:,.0f}",
        f"{report['bytes'] / 1e9:,.1f}",
        found,
        f"{report['seconds'] * 1e3:,.1f} ms, {report['bound']}",
        f"{UPDATES * report['seconds'] / 3_600:.1f} h" + ("†" if report["careful"] else ""),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, default=Path("runs/tpu"))
    parser.add_argument("--chips", nargs="+", choices=list(TOPOLOGIES), default=list(TOPOLOGIES))
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    columns = ["machine", "agent", "computes in", "memory", "of it temporaries", "GFLOP", "GB", "collectives"]
    columns += ["an update takes at least", "200,000 updates"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for chip in args.chips:
        for agent in ("rosmo", "mzu"):
            for dtype in ("float32", "bfloat16"):
                print(row(chip, agent, dtype, compiled(args.keep, chip, agent, dtype)), flush=True)


if __name__ == "__main__":
    main()

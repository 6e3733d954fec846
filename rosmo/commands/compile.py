"""Compiles the update of a configuration for a TPU, without one, and says what it would cost there."""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
from typing import Any

import gin

from rosmo import configs
from rosmo.commands.shared import DEFAULT_CONFIGS, add_configuration
from rosmo.costs.tpu import chip_of, compile_update
from rosmo.learner.sharding import mesh_shape

# libtpu would ask a TPU host for metadata, and let no other process load it.
_QUIET = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}
# Convolutions fused into convolutions can overflow the stack of libtpu's threads (seen in version 0.0.42).
_CAREFUL = "--xla_jf_conv_input_fusion=false"
_CHILD = "from rosmo.commands.compile import child; child()"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    add_configuration(parser)
    parser.add_argument("--topology", required=True, metavar="CHIP:SHAPE", help="v5e:2x4, v4:2x2x1, …")
    parser.add_argument("--mesh", help="data=8, or data=4,model=2 to split the state too (default: data=all)")
    parser.add_argument("--timeout", type=int, default=3_600, metavar="SECONDS", help="of the compiler")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")


def run(args: argparse.Namespace) -> None:
    """Prints memory, FLOPs, bytes and collectives of an update, and the time it cannot go below."""
    chip_of(args.topology)
    if args.mesh:
        mesh_shape(args.mesh)
    if importlib.util.find_spec("libtpu") is None:
        raise ImportError('rosmo compile needs the compiler for TPUs: pip install "rosmo[tpu]"')
    configs.load(args.configs or DEFAULT_CONFIGS, args.bind, args.imports).build_agent()
    asked = {"text": gin.config_str(), "imports": args.imports, "mesh": args.mesh, "topology": args.topology}
    report = in_child(asked, args.timeout)
    print(json.dumps(report) if args.json else describe(report))


def in_child(asked: dict[str, Any], timeout: int) -> dict[str, Any]:
    """Compiles in a process of its own: the compiler ends its process where it fails.

    Where it crashes, it is tried once more with less fusion, and the report says so.
    """
    done = _compiler(asked, timeout)
    careful = done.returncode < 0
    if careful:
        flags = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} {_CAREFUL}"
        done = _compiler(asked, timeout, LIBTPU_INIT_ARGS=flags)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"code {done.returncode}"
        raise ChildProcessError(f"the compiler for {asked['topology']} failed with {how}: {last}")
    report = json.loads(done.stdout.splitlines()[-1])
    if "mistake" in report:
        raise ValueError(report["mistake"])
    return report | {"careful": careful}


def _compiler(asked: dict[str, Any], timeout: int, **environment: str) -> subprocess.CompletedProcess[str]:
    streams = {"input": json.dumps(asked), "capture_output": True, "text": True}
    command, environment = [sys.executable, "-c", _CHILD], os.environ | _QUIET | environment
    try:
        return subprocess.run(command, env=environment, timeout=timeout, **streams)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"the compiler for {asked['topology']} took more than {timeout} s") from error


def child() -> None:
    """Compiles what standard input asks for and writes the report to standard output."""
    asked = json.load(sys.stdin)
    training = configs.load(imports=asked["imports"], text=asked["text"])
    try:
        report = compile_update(training, asked["topology"], asked["mesh"])
    except ValueError as error:  # a mistake of the user's, to be told as one
        report = {"mistake": str(error)}
    print(json.dumps(report))


def describe(report: dict[str, Any]) -> str:
    """Returns a report as lines for people."""
    mesh = ",".join(f"{axis}={size}" for axis, size in report["mesh"].items())
    needed = report["arguments"] + report["temporaries"]
    lines = [
        f"{report['topology']}, {report['devices']} devices ({mesh}), batch {report['batch']}; on each:",
        *(
            f"  {name:<12} {report[name] / 2**20:>10,.1f} MiB"
            for name in ("parameters", "target", "optimizer", "temporaries")
        ),
        f"  {'in all':<12} {needed / 2**20:>10,.1f} MiB of {report['memory'] / 2**20:,.0f}: "
        + ("fits" if report["fits"] else "does not fit"),
        f"  FLOP         {_short(report['flops'] / 1e9):>10} G (loops multiplied out)",
        f"  bytes        {_short(report['bytes'] / 1e9):>10} GB through main memory (loops multiplied out)",
        *(f"  {c['count']} × {c['kind']}, {c['bytes'] / 2**20:,.1f} MiB" for c in report["collectives"]),
        f"an update takes at least {_short(report['seconds'] * 1e3)} ms, bound by {report['bound']}",
        *(["compiled with less fusion: the compiler crashed with its own settings"] * report["careful"]),
    ]
    return "\n".join(lines)


def _short(number: float) -> str:
    return f"{number:,.1f}" if number >= 1 else f"{number:.2g}"

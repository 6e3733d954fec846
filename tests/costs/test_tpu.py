"""Compiling for a TPU: what needs no compiler, and with one (extra `tpu`) a small update."""

import importlib.util
import json
from types import SimpleNamespace

import pytest

from rosmo.cli import main
from rosmo.commands import compile as command
from rosmo.costs.tpu import CHIPS, chip_of, roofline
from tests.limits import HUNG

REPORT = {
    "topology": "v5e:2x4",
    "mesh": {"data": 8},
    "devices": 8,
    "batch": 512,
    "parameters": 8 * 2**20,
    "target": 8 * 2**20,
    "optimizer": 16 * 2**20,
    "arguments": 40 * 2**20,
    "temporaries": 2**30,
    "flops": 197e9,
    "bytes": 8.19e9,
    "collectives": [{"kind": "all-reduce", "count": 1, "bytes": 8 * 2**20}],
    "careful": False,
}
with_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs rosmo[tpu]")


def test_the_roofline_is_the_slower_of_products_and_memory():
    """By hand: 197 GFLOP at 197 TFLOP/s are 1 ms, 8.19 GB at 819 GB/s are 10 ms."""
    found = roofline(REPORT, CHIPS["v5e"])
    assert (found["bound"], found["fits"]) == ("bandwidth", True)
    assert found["seconds"] == pytest.approx(10e-3)
    found = roofline(REPORT | {"bytes": 0.0, "temporaries": 16 * 2**30}, CHIPS["v5e"])
    assert (found["bound"], found["fits"]) == ("FLOP/s", False)
    assert found["seconds"] == pytest.approx(1e-3)


def test_two_cores_share_the_peaks_of_a_chip():
    """As JAX counts devices, a v3 chip of 32 GiB has two, at its own coordinates, and a v5e chip is one."""
    chips = [SimpleNamespace(coords=[x, 0, 0]) for x in range(4)]
    assert CHIPS["v5e"].core(chips) == CHIPS["v5e"]
    core = CHIPS["v3"].core([chip for chip in chips for _ in range(2)])
    assert core == (16 * 2**30, 61.5e12, 450e9)


def test_a_report_is_readable():
    text = command.describe(REPORT | roofline(REPORT, CHIPS["v5e"]))
    for expected in (
        "1,064.0 MiB of 16,384: fits",
        "1 × all-reduce, 8.0 MiB",
        "10.0 ms, bound by bandwidth",
    ):
        assert expected in text


@pytest.mark.parametrize("topology", ["v5e", "v9:2x2", "v5e:2y4", ""])
def test_a_topology_that_is_none_is_refused(topology, capsys):
    with pytest.raises(ValueError, match="a topology is written as v5e:2x4"):
        chip_of(topology)
    assert main(["compile", "bsuite/rosmo", "--topology", topology or "x"]) == 1
    assert "a topology is written as" in capsys.readouterr().err


def test_without_the_compiler_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["compile", "bsuite/rosmo", "--topology", "v5e:2x4"]) == 1
    assert 'pip install "rosmo[tpu]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "seconds", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", HUNG, "for v5e:2x4 failed with SIGSEGV"),
        ("raise SystemExit('no such chip')", HUNG, "failed with code 1: no such chip"),
        (f"import time; time.sleep({HUNG})", 2, "took more than 2 s"),
    ],
)
def test_a_compiler_that_fails_says_so(program, seconds, message, monkeypatch):
    monkeypatch.setattr(command, "_CHILD", program)
    with pytest.raises(OSError, match=message):
        command.in_child({"topology": "v5e:2x4"}, timeout=seconds)


def test_a_compiler_that_crashes_is_tried_again_with_less_fusion(monkeypatch):
    crash = "import os; 'fusion' in os.environ.get('LIBTPU_INIT_ARGS', '') or os.kill(os.getpid(), 11)"
    monkeypatch.setattr(command, "_CHILD", f"{crash}; print('{{}}')")
    report = command.in_child({"topology": "v5e:2x4"}, timeout=HUNG)
    assert report == {"careful": True}
    assert "less fusion" in command.describe(REPORT | roofline(REPORT, CHIPS["v5e"]) | report)


def test_a_mistake_is_told_as_one_and_not_as_the_compilers(monkeypatch):
    monkeypatch.setattr(command, "_CHILD", """print('{"mistake": "a batch of 100 does not divide"}')""")
    with pytest.raises(ValueError, match=r"^a batch of 100 does not divide$"):
        command.in_child({"topology": "v5e:2x4"}, timeout=HUNG)


@with_libtpu
@pytest.mark.slow
def test_a_small_update_compiles_for_a_tpu(capsys):
    arguments = ["--topology", "v5e:2x4", "--mesh", "data=4,model=2", "--json"]
    assert main(["compile", "bsuite/rosmo", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fits"]
    assert {entry["kind"] for entry in report["collectives"]} >= {"all-reduce", "all-gather"}

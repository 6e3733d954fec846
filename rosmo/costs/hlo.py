"""What a compiled program exchanges between devices and moves through memory, read from its text.

XLA's own count of bytes takes the body of a loop once, however often it runs, and counts arrays that a TPU
keeps on the chip. Here bodies are multiplied out and only the device's main memory counts.
"""

import dataclasses
import functools
import itertools
import math
import re
from typing import Any

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}

_FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "iota",
    "partition-id",
}
_FREE |= {"copy-start", "slice-start"}  # counted where they are done
_SLICES = {"dynamic-slice", "slice", "gather"}  # read no more than they return
_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}  # write no more than this operand
_HEADER = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*?)\)(.*)$")


def collectives(text: str) -> list[dict[str, Any]]:
    """Returns the kinds of collectives in a compiled program's text, with their number and bytes in all."""
    found: dict[str, list[int]] = {}
    kinds = "|".join(COLLECTIVES)
    for result, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text):
        found.setdefault(kind, []).append(_bytes_of(result))
    return [{"kind": kind, "count": len(sizes), "bytes": sum(sizes)} for kind, sizes in found.items()]


def moved_bytes(text: str) -> int:
    """Returns the bytes that a compiled program reads from and writes to its device's main memory.

    A fused operation moves its operands, or the slices it takes of them, and its result. A loop counts as
    often as it runs where the text says how often, and once where that hangs on data.
    """
    computations, entry = _parse(text)

    def total(name: str) -> int:
        here = computations[name]
        return sum(moved(here, each) for each in here.instructions.values())

    def moved(here: "_Computation", each: "_Instruction") -> int:
        if each.kind == "while":
            return _trips(each, computations[each.called("condition")]) * total(each.called("body"))
        if each.kind == "call":
            return total(each.called("to_apply"))
        if each.kind == "conditional":
            return max(total(name) for name in re.findall(r"%([\w.-]+)", each.rest) if name in computations)
        if each.kind in _FREE or "AllocateBuffer" in each.rest or "ConcatBitcast" in each.rest:
            return 0
        if each.kind.endswith("-done"):  # between main memory and the chip
            return _stored(each.shape, on_chip=True)
        fused = computations.get(each.called("calls"))
        return _by_a_fusion(here, each, fused) if fused else _by_an_operation(here, each)

    return total(entry)


@dataclasses.dataclass
class _Instruction:
    name: str
    shape: str
    kind: str
    arguments: str  # the names of its operands, or the number of a constant
    rest: str  # what follows them: the computations that it calls, among others

    @functools.cached_property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.-]+)", self.arguments)

    def called(self, attribute: str) -> str:
        found = re.search(rf"\b{attribute}=%([\w.-]+)", self.rest)
        return found[1] if found else ""


@dataclasses.dataclass
class _Computation:
    instructions: dict[str, _Instruction] = dataclasses.field(default_factory=dict)
    root: str = ""

    def size(self, name: str) -> int:
        """The bytes of a value in main memory."""
        return _stored(self.instructions[name].shape) if name in self.instructions else 0


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    computations, current, entry = {}, _Computation(), ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = computations.setdefault(header[1], _Computation())
            entry = header[1] if line.startswith("ENTRY") else entry
        elif found := _INSTRUCTION.match(line):
            root, name, *parts = found.groups()
            current.instructions[name] = _Instruction(name, *parts)
            current.root = name if root else current.root
    return computations, entry


def _trips(loop: _Instruction, condition: _Computation) -> int:
    """How often a loop runs: as XLA noted it, or up to the constant that its counter is compared with."""
    if noted := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(noted[1])
    root = condition.instructions[condition.root]
    limit = condition.instructions[root.operands[-1]]
    counted = root.kind == "compare" and "direction=LT" in root.rest and limit.kind == "constant"
    return int(limit.arguments) if counted else 1


def _by_an_operation(here: _Computation, each: _Instruction) -> int:
    if each.kind in _SLICES:
        return 2 * here.size(each.name)
    if each.kind in _IN_PLACE:
        return 2 * here.size(each.operands[_IN_PLACE[each.kind]])
    return here.size(each.name) + sum(here.size(name) for name in each.operands)


def _by_a_fusion(here: _Computation, each: _Instruction, fused: _Computation) -> int:
    root, written = fused.instructions[fused.root], here.size(each.name)
    if root.kind in _IN_PLACE and written:
        written = _stored(fused.instructions[root.operands[_IN_PLACE[root.kind]]].shape, on_chip=True)
    return written + sum(_read(fused, x) for x in fused.instructions.values() if x.kind == "parameter")


def _read(fused: _Computation, parameter: _Instruction) -> int:
    """What a fusion reads of an operand: all, or the slices that it takes and nothing where it writes."""
    whole, read = fused.size(parameter.name), 0
    for user in fused.instructions.values():
        if parameter.name not in user.operands:
            continue
        if user.operands[0] != parameter.name or user.kind not in _SLICES | _IN_PLACE.keys():
            return whole
        read += _stored(user.shape, on_chip=True) if user.kind in _SLICES else 0
    return min(read, whole)


def _arrays(shape: str) -> list[tuple[str, list[int], str]]:
    """The type, the dimensions and the layout of an array, or of each in a tuple, as XLA writes them."""
    found = re.findall(r"(\w+)\[([\d,]*)\](\{[^}]*\})?", shape)
    return [(kind, [int(n) for n in sizes.split(",") if n], layout) for kind, sizes, layout in found]


def _bytes_of(shape: str) -> int:
    return sum(_BYTES.get(kind, 4) * math.prod(sizes) for kind, sizes, _ in _arrays(shape))


def _stored(shape: str, *, on_chip: bool = False) -> int:
    """The bytes that arrays take in main memory, filled up to the tiles of their layouts.

    In {0,2,1:T(8,128)S(1)}, dimension 0 runs fastest and is filled up to a multiple of 128, dimension 2 to
    one of 8; S(1) is not main memory but the chip's.
    """
    total = 0
    for kind, sizes, layout in _arrays(shape):
        if "S(" in layout and not on_chip:
            continue
        order, tile = (
            [int(n) for n in part.split(",") if n]
            for part in re.findall(r"^\{?([\d,]*)(?::T\(([\d,]*)\))?", layout)[0]
        )
        fastest_first = [sizes[axis] for axis in order] or sizes[::-1]
        filled = [-(-n // t) * t for n, t in itertools.zip_longest(fastest_first, tile[::-1], fillvalue=1)]
        total += _BYTES.get(kind, 4) * math.prod(filled)
    return total

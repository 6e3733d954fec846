"""Bytes and collectives of a compiled program: of texts by hand, of real ones beside XLA's own count."""

import jax
import jax.numpy as jnp
import pytest

from rosmo.costs.hlo import collectives, moved_bytes

PROGRAM = """
%slicing (a: f32[10,64], b: s32[]) -> f32[1,64] {
  %a = f32[10,64]{1,0} parameter(0)
  %b = s32[] parameter(1)
  ROOT %taken = f32[1,64]{1,0} dynamic-slice(%a, %b, %b), dynamic_slice_sizes={1,64}
}

%writing (c: f32[10,64], d: f32[1,64], e: s32[]) -> f32[10,64] {
  %c = f32[10,64]{1,0} parameter(0)
  %d = f32[1,64]{1,0} parameter(1)
  %e = s32[] parameter(2)
  ROOT %put = f32[10,64]{1,0} dynamic-update-slice(%c, %d, %e, %e)
}

%body (state: (s32[], f32[10,64])) -> (s32[], f32[10,64]) {
  %state = (s32[], f32[10,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[10,64]{1,0} get-tuple-element(%state), index=1
  %row = f32[1,64]{1,0} fusion(%x, %i), kind=kLoop, calls=%slicing
  %next = f32[10,64]{1,0} fusion(%x, %row, %i), kind=kLoop, calls=%writing
  ROOT %both = (s32[], f32[10,64]{1,0}) tuple(%i, %next)
}

%condition (state.1: (s32[], f32[10,64])) -> pred[] {
  %state.1 = (s32[], f32[10,64]{1,0}) parameter(0)
  %limit = s32[] constant(20)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (p: f32[10,64]) -> f32[10,64] {
  %p = f32[10,64]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[10,64]{1,0}) tuple(%zero, %p)
  %loop = (s32[], f32[10,64]{1,0}) while(%begin), condition=%condition, body=%body
  ROOT %end = f32[10,64]{1,0} get-tuple-element(%loop), index=1
}
"""
ONE_PASS = (4 * 64 + 4 * 64 + 4) + (4 * 64 + 4 * 64 + 4)  # a row and the counter read, a row written; twice


def entry(*lines: str) -> str:
    return "\n".join(["ENTRY %main (p: f32[8]) -> f32[8] {", *(f"  {line}" for line in lines), "}"])


def test_collectives_are_found_in_a_compiled_text():
    text = """
      %all-reduce.1 = f32[10,2]{1,0:T(8,128)} all-reduce(%x), channel_id=1
      %gather = (bf16[4]{0}, bf16[16]{0}) all-gather-start(%y), dimensions={0}
      %again = f32[3]{0} all-reduce(%z)
      %not = f32[3]{0} add(%all-reduce.1, %again)
    """
    assert collectives(text) == [
        {"kind": "all-reduce", "count": 2, "bytes": 80 + 12},
        {"kind": "all-gather", "count": 1, "bytes": 40},
    ]


def test_a_loop_counts_as_often_as_it_runs_and_slices_for_what_they_touch():
    assert moved_bytes(PROGRAM) == 20 * ONE_PASS
    noted = PROGRAM.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"7"}}')
    assert moved_bytes(noted) == 7 * ONE_PASS
    assert moved_bytes(PROGRAM.replace("constant(20)", "parameter(1)")) == ONE_PASS  # it hangs on data


def test_only_main_memory_counts_filled_up_to_tiles():
    """By hand: 64 numbers are stored as 128, in 8 rows instead of 3; what has S(1) is on the chip."""
    text = entry(
        "%p = f32[3,64]{1,0:T(8,128)} parameter(0)",
        "%copied = f32[3,64]{1,0:T(8,128)S(1)} copy(%p)",
        "%inside = f32[3,64]{1,0:T(8,128)S(1)} add(%copied, %copied)",
        "ROOT %out = bf16[64,3]{0,1:T(8,128)(2,1)} convert(%inside)",
    )
    assert moved_bytes(text) == 8 * 128 * 4 + 8 * 128 * 2


def test_an_asynchronous_copy_counts_once():
    text = entry(
        "%p = f32[1024]{0:T(1024)} parameter(0)",
        "%start = (f32[1024]{0:T(1024)S(1)}, f32[1024]{0:T(1024)}, u32[]{:S(2)}) copy-start(%p)",
        "ROOT %done = f32[1024]{0:T(1024)S(1)} copy-done(%start)",
    )
    assert moved_bytes(text) == 4096


def test_a_branch_counts_by_the_dearest():
    branches = """
%one (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %b = f32[8]{0} negate(%a)
}

%two (c: f32[8]) -> f32[8] {
  %c = f32[8]{0} parameter(0)
  %d = f32[8]{0} negate(%c)
  ROOT %e = f32[8]{0} negate(%d)
}

"""
    call = "ROOT %f = f32[8]{0} conditional(%p, %p, %p), branch_computations={%one, %two}"
    assert moved_bytes(branches + entry("%p = f32[8]{0} parameter(0)", call)) == 4 * 32


def test_real_programs_agree_with_the_count_of_xla_where_it_can_count():
    """XLA's count takes a loop's body once, and so is right for one pass and a bound for each further one."""
    weight = jnp.ones((64, 64))

    def compiled(length: int):
        def chain(x):
            return jax.lax.scan(lambda x, _: (jnp.tanh(x @ weight), None), x, length=length)[0]

        return jax.jit(chain).lower(jnp.ones((512, 64))).compile()

    def counted(length: int) -> float:
        return dict(compiled(length).cost_analysis() or {})["bytes accessed"]

    assert moved_bytes(compiled(1).as_text() or "") == pytest.approx(counted(1), rel=0.02)
    eleven, further = (moved_bytes(compiled(length).as_text() or "") for length in (11, 21))
    assert 10 * 2 * 512 * 64 * 4 < further - eleven < 10 * counted(11)

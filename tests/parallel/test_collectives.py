"""What devices exchange is read from a compiled program, and devices need not be there for it."""

import os
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import pytest

from ckl_jax.cli import t5x
from ckl_jax.errors import UserError
from ckl_jax.parallel import flops, topology
from ckl_jax.parallel.collectives import Collective, collectives, table

MESH = types.SimpleNamespace(shape={"data": 2, "fsdp": 2, "model": 2}, size=8)
# One of each form in which compilers write groups and results.
_HLO = """HloModule jit_step

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %g = bf16[16,8]{1,0:T(8,128)(2,1)} all-gather(%x), replica_groups=[4,2]<=[2,2,2]T(0,2,1), dimensions={0}
  %p = f32[64]{0} collective-permute(%x), source_target_pairs={{0,4},{4,0},{1,5},{5,1},{2,6},{6,2},{3,7},{7,3}}
  %two = s32[]{:T(128)} constant(2)
  %i = s32[]{:T(128)} get-tuple-element(%state), index=0
  %next = s32[]{:T(128)} add(%i, %two), metadata={op_name="step"}
  ROOT %t = (s32[], f32[8]) tuple(%next, /*index=1*/%p)
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %n = s32[]{:T(128)} constant(48)
  %i = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %n), direction=LT
}

%async (x: f32[32]) -> f32[4] {
  ROOT %rs = f32[4]{0} reduce-scatter(%x), replica_groups={}, dimensions={0}, to_apply=%add
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %w = (s32[], f32[8]) while(%t), condition=%condition, body=%body
  %known = (s32[], f32[8]) while(%t), condition=%other, body=%once, backend_config={"known_trip_count":{"n":"5"}}
  %ar = (f32[6]{0}, f32[2]{0}) all-reduce(%x, %y), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  %s = (f32[4], f32[32]) all-gather-start(%x), replica_groups=[1,8]<=[8], dimensions={0}
  %d = f32[32] all-gather-done(%s)
  %named = f32[4]{0} all-reduce(%x), replica_groups=mesh['a'=2,'b'=4], device_ids=([2,2,2]T(1,0,2)) {'b':(1)2}, to_apply=%add
  %c = f32[4] async-start(%x), calls=%async
  %f = f32[8] fusion(%all-reduce.1), calls=%add
  %alone = f32[8] all-reduce(%x), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add
}
"""  # noqa: E501


def test_every_form_is_read_and_loops_count_as_often_as_they_run():
    found = {(c.kind, c.axis): c for c in collectives(_HLO, MESH)}
    gathered = 16 * 8 * 2 // 2
    assert found == {
        (c.kind, c.axis): c
        for c in (
            Collective("all-gather", "fsdp", 2, 24, 24 * gathered),
            Collective("collective-permute", "data", 2, 24, 24 * 64 * 4),
            Collective("all-reduce", "model", 2, 1, 2 * 8 * 4 // 2),
            Collective("all-gather", "data+fsdp+model", 8, 1, 32 * 4 * 7 // 8),
            Collective("all-reduce", "data", 2, 1, 4 * 4),
            Collective("reduce-scatter", "data+fsdp+model", 8, 1, 4 * 4 * 8 * 7 // 8),
        )
    }
    lines = table(list(found.values())).splitlines()
    assert len(lines) == 8 and lines[-1].split()[:2] == ["sum", "52"]
    assert len({len(line) for line in lines}) == 1


def test_products_count_as_often_as_loops_run():
    def step(w, x):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=3)[0].sum()

    shapes = jax.ShapeDtypeStruct((8, 8), "float32"), jax.ShapeDtypeStruct((4, 8), "float32")
    one = 2 * 4 * 8 * 8
    assert flops.of_jaxpr(jax.make_jaxpr(step)(*shapes)) == 3 * one
    # Backward: one product for the input and one for the weights.
    assert flops.of_jaxpr(jax.make_jaxpr(jax.grad(step, (0, 1)))(*shapes)) == 9 * one


@pytest.mark.parametrize(
    "name, shape",
    [
        ("v4-32", ("v4", "2x2x4")),
        ("v4:4x4x4", ("v4", "4x4x4")),
        ("v5p-128", ("v5p", "4x4x4")),
        ("v5litepod-16", ("v5litepod", "4x4")),
        ("v6e:2x4", ("v6e", "2x4")),
        ("tpu7x-8", ("tpu7x", "2x2x1")),
        ("tpu7x:2x2x2", ("tpu7x", "2x2x2")),
        ("h100", ("h100", "1x1x1")),
        ("h200-16", ("h200", "1x2x8")),
    ],
)
def test_slices_have_the_shapes_of_the_cloud(name, shape):
    assert topology.parse(name) == shape


@pytest.mark.parametrize("name", ["v4", "v9-8", "32", "v4:2", "v4-24", "h100-12", "h100-0"])
def test_unknown_slices_are_one_sentence(name):
    with pytest.raises(UserError, match=f"--topology={name}"):
        topology.parse(name)


@pytest.mark.parametrize(
    "argv, message",
    [
        (["train", "--devices=8"], "--devices is a flag of `t5x precompile`, not of `t5x train`"),
        (["precompile", "--devices=8", "--topology=v4-8"], "--devices and --topology exclude"),
        (["precompile", "--devices=0"], "--devices is how many devices"),
        (["precompile", "--topology=v3-8"], "--topology=v3-8 names no TPU slice"),
    ],
)
def test_flags_are_checked_before_anything_is_compiled(argv, message, capsys, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert t5x.main([*argv, "--gin_file=ckl_lora.gin", "--gin_file=tiny.gin"]) == 2
    assert message in capsys.readouterr().err


def precompile(*argv):
    flags = ["--gin_file=ckl_lora.gin", "--gin_file=tiny.gin", *argv]
    command = [sys.executable, "-m", "ckl_jax", "precompile", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_a_pod_is_simulated_by_devices_of_this_machine():
    text = precompile("--devices=8", "--gin.MESH_SHAPE={'fsdp': 2, 'model': 2}")
    assert text.startswith("compiled for") and "8 x cpu" in text.splitlines()[0]
    rows = [line.split() for line in text.split("\n\n")[1].splitlines()]
    assert {("all-gather", "fsdp"), ("all-reduce", "model")} <= {tuple(row[:2]) for row in rows}
    assert rows[-1][0] == "sum"


@pytest.mark.slow
def test_a_tpu_slice_is_compiled_for_without_it():
    pytest.importorskip("libtpu")
    text = precompile("--topology=v4-8", "--gin.MESH_SHAPE={'fsdp': 2}")
    assert "4 x TPU v4 (v4-8)" in text.splitlines()[0] and "all-gather" in text


@pytest.mark.slow
def test_a_gpu_is_compiled_for_without_it():
    pytest.importorskip("jax_plugins.xla_cuda13")
    text = precompile("--topology=h100-2", "--gin.MESH_SHAPE={'fsdp': 2}")
    assert "2 x NVIDIA H100" in text.splitlines()[0] and "all-gather" in text

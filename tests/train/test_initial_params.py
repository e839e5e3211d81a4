"""Where the parameters of a run come from: either form of layers, maps, partial restores, T5X."""

import dataclasses
import errno
import functools
import os
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import setup
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.trees.paths import flatten, loop_to_scan, unflatten
from tests.helpers import TINY, TINY_GPT2, model_of, random_batch, random_params
from tests.parity.golden import packing
from tests.parity.golden_t5 import GOLDEN


@pytest.fixture(scope="module")
def params():
    return random_params(TINY)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, params):
    """{scan_layers: folder of a checkpoint}."""
    folders = {}
    for scan in (False, True):
        folders[scan] = str(tmp_path_factory.mktemp("saved"))
        with CheckpointStore(folders[scan]) as store:
            state = {"params": loop_to_scan(params) if scan else params, "step": jnp.int32(4)}
            store.save(4, state, {"scan_layers": scan})
    return folders


def load(config, path, method=None, **options):
    method = method or vanilla()
    base = EncoderDecoderModel(Transformer(config))
    shapes = setup.param_shapes(base, method, Partitioner())
    found = setup.initial_params(
        base.with_method(method), shapes, jax.random.key(0), path, **options
    )
    return {name: np.asarray(x) for name, x in flatten(found).items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("stored_scan", [False, True])
def test_layers_are_stacked_or_not_as_the_model_wants(saved, params, stored_scan, scan):
    config = dataclasses.replace(TINY, scan_layers=scan)
    expected = flatten(loop_to_scan(params) if scan else params)
    assert_same(load(config, saved[stored_scan]), expected)


def test_a_checkpoint_of_t5x_starts_a_run(tmp_path):
    with zipfile.ZipFile(GOLDEN / "t5x_legacy.zip") as archive:
        archive.extractall(tmp_path)
    with np.load(GOLDEN / "t5x_legacy.npz") as stored:
        content = packing.unpack(stored)
    config = T5Config(
        vocab_size=4,
        emb_dim=4,
        num_heads=1,
        head_dim=2,
        mlp_dim=2,
        num_encoder_layers=1,
        num_decoder_layers=1,
        logits_via_embedding=True,
    )
    path = str(tmp_path / "checkpoint_3")
    assert RestoreCheckpointConfig(path=path, mode="specific").checkpoints() == [path]
    assert RestoreCheckpointConfig(path=str(tmp_path), mode="all").checkpoints() == [path]
    found = load(config, path)
    for name, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, content[f"target/{name}"].astype(jnp.bfloat16))


def test_rules_move_and_drop_parameters(saved, params):
    kernel = "encoder/layers_{}/mlp/wi/kernel".format
    rules = [
        (r"target/encoder/layers_0/(.*)", r"target/encoder/layers_1/\1"),
        (r"target/decoder/decoder_norm/scale", None),
        (r"state/.*", None),
    ]
    found = load(TINY, saved[False], assignment_map=rules)
    before = flatten(params)
    np.testing.assert_array_equal(found[kernel(0)], before[kernel(1)])
    np.testing.assert_array_equal(found[kernel(1)], before[kernel(1)])
    np.testing.assert_array_equal(found["decoder/decoder_norm/scale"], np.ones(TINY.emb_dim))


def test_a_partial_restore_says_so_or_is_refused(saved, params):
    more = dataclasses.replace(TINY, num_encoder_layers=3)
    read = functools.partial(load, more, saved[False])
    with pytest.raises(UserError, match="missing in it .8.: target/encoder/layers_2/"):
        read()
    found = read(fallback_to_scratch=True)
    assert_same({name: found[name] for name in flatten(params)}, flatten(params))
    fewer = dataclasses.replace(TINY, num_encoder_layers=1)
    with pytest.raises(UserError, match="in it but not in the model .8.: target/encoder/layers_1/"):
        load(fewer, saved[False])
    found = load(fewer, saved[False], strict=False)
    assert_same(found, {name: flatten(params)[name] for name in found})


def test_a_method_finds_its_base_and_makes_the_rest(saved, params):
    found = load(TINY, saved[True], lora())
    added = {name for name in found if "lora_" in name}
    assert added
    assert_same({n: x for n, x in found.items() if n not in added}, flatten(params))
    with pytest.raises(UserError, match=f"missing in it .{len(added)}."):
        load(TINY, saved[True], lora(), complete=True)


def test_frozen_layers_that_are_scanned_lie_one_after_the_other(saved, params):
    """Also where they are split over devices; a scan would copy the whole stack first."""
    config, method = dataclasses.replace(TINY, scan_layers=True), lora(rank=2, trunk=())
    base = EncoderDecoderModel(Transformer(config))
    for mesh in ({"data": 8}, {"fsdp": 2, "model": 2, "data": 2}):
        shapes = setup.param_shapes(base, method, Partitioner(mesh_shape=mesh))
        model, key = base.with_method(method), jax.random.key(0)
        found = flatten(setup.initial_params(model, shapes, key, saved[False]))
        kernel = "decoder/decoder/mlp/wi/kernel"
        assert found[kernel].format.layout.major_to_minor == (1, 0, 2)
        trained = "decoder/decoder/self_attention/query/lora_0/a"
        assert found[trained].format.layout.major_to_minor == (0, 1, 2)
        stacked = flatten(loop_to_scan(params))
        for name in flatten(shapes.frozen):
            np.testing.assert_array_equal(found[name], stacked[name], err_msg=name)


def test_a_frozen_parameter_must_be_found_again(saved):
    rule = (r"target/encoder/encoder_norm/scale", None)
    with pytest.raises(UserError, match="The method freezes target/encoder/encoder_norm/scale"):
        load(TINY, saved[False], lora(), assignment_map=[rule])
    load(TINY, saved[False], assignment_map=[rule])


@pytest.mark.parametrize("scan", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_adapter_finds_a_base_of_another_form_and_type(tmp_path, params, scan):
    """The base has its layers the other way round, in bfloat16."""
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    with CheckpointStore(tmp_path / "base") as store:
        store.save(0, {"params": half if scan else loop_to_scan(half)})
    config = dataclasses.replace(TINY, scan_layers=scan)
    started = load(config, str(tmp_path / "base"), lora())
    trainable, frozen = setup.split(unflatten(started), lora().trainable)
    metadata = {
        "base_checkpoint": str(tmp_path / "base"),
        "frozen_digest": tree_digest(frozen),
        "frozen_paths": sorted(flatten(frozen)),
    }
    with CheckpointStore(tmp_path / "run") as store:
        store.save(1, {"params": trainable}, metadata)
    assert_same(load(config, str(tmp_path / "run"), lora(), complete=True), started)
    # A run that starts from that one keeps both.
    setup.link_base(tmp_path / "next", str(tmp_path / "run"))
    for name in ("base", "run"):
        (tmp_path / name).rename(tmp_path / f"no_{name}")
    assert_same(load(config, str(tmp_path / "next" / "base"), lora(), complete=True), started)


def test_where_files_have_one_name_a_base_stays_where_it_is(saved, tmp_path, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    setup.link_base(tmp_path, saved[False])
    assert not list(tmp_path.iterdir())
    assert f"{saved[False]}, which lies on another file system" in capsys.readouterr().out


@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("base", "trunk"),
    [pytest.param(TINY, ("^decoder/",), marks=pytest.mark.slow), (TINY_GPT2, ())],
)
def test_dora_starts_at_the_base_model(base, trunk, scan, tmp_path):
    """Its magnitudes are those of the restored kernels, not what initialisers made."""
    base = dataclasses.replace(base, scan_layers=scan)
    model, method, params = model_of(base), lora(trunk=trunk, dora=True), random_params(base)
    with CheckpointStore(str(tmp_path)) as store:
        store.save(0, {"params": params, "step": jnp.int32(0)}, {"scan_layers": scan})
    shapes = setup.param_shapes(model, method, Partitioner())
    adapted = model.with_method(method)
    started = setup.initial_params(
        adapted, shapes, jax.random.key(0), str(tmp_path), init=method.init_params
    )
    batch = random_batch(base)
    plain, logits = np.asarray(jax.jit(model.logits)(params, batch)), jax.jit(adapted.logits)
    np.testing.assert_allclose(logits(started, batch), plain, rtol=1e-4, atol=1e-4)
    for made, message in (
        (lambda params, new: None, "init_params returned None; give a dictionary"),
        (
            lambda params, new: {p: params[p][:1] for p in new},
            r"init_params makes .* \[1",
        ),
        (
            lambda params, new: {p: params[p].astype("int32") for p in new},
            "makes .* int32; the",
        ),
        (lambda params, new: dict.fromkeys(new, "a"), "init_params makes .* a str; give an array"),
        (lambda params, new: {3: params}, "init_params sets 3, which are not new"),
    ):
        with pytest.raises(UserError, match=message):
            setup.initial_params(adapted, shapes, jax.random.key(0), str(tmp_path), init=made)
    without = setup.initial_params(adapted, shapes, jax.random.key(0), str(tmp_path))
    assert np.abs(np.asarray(logits(without, batch)) - plain).max() > 1e-2

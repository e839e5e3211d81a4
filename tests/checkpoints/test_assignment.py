"""Assignment maps, partial restores, and stacked or separate layers."""

import numpy as np
import pytest

from ckl_jax.checkpoints.assignment import assign
from ckl_jax.checkpoints.scan_layout import convert, is_stacked
from ckl_jax.errors import UserError
from ckl_jax.trees import paths

OLD = [f"target/encoder/layers_{i}/kernel" for i in range(3)] + ["target/head", "state/step"]


def test_names_that_agree_need_no_map():
    found = assign(OLD, OLD)
    assert found.sources == {name: name for name in OLD}
    assert (found.fresh, found.unused) == ((), ())


def test_rules_rename_drop_and_share():
    wanted = ["target/body/layers_0/kernel", "target/body/layers_1/kernel", "target/head"]
    found = assign(
        wanted,
        OLD,
        [(r"target/body/layers_\d+/(.*)", r"target/encoder/layers_2/\1"), (r".*head", None)],
        strict=False,
    )
    assert found.sources == dict.fromkeys(wanted[:2], "target/encoder/layers_2/kernel")
    assert found.fresh == ("target/head",)
    assert found.unused == tuple(OLD[i] for i in (0, 1, 4))


def test_the_first_rule_that_matches_counts_and_the_whole_name_must():
    rules = [(r"target/head", "target/encoder/layers_0/kernel"), (r"target/.*", r"target/head")]
    found = assign(["target/head", "target/x"], OLD, rules, strict=False)
    assert found.sources == {"target/head": OLD[0], "target/x": "target/head"}
    with pytest.raises(UserError, match="Rule 'head' of assignment_map matches none of the 1"):
        assign(["target/head"], ["target/head"], [("head", None)])


def test_rules_on_a_state_that_is_not_read_are_no_error():
    found = assign(["target/a"], ["target/a"], [("state.*", None)], elsewhere=["state/step"])
    assert found.sources == {"target/a": "target/a"}


def test_what_a_rule_drops_or_replaces_is_not_left_over():
    found = assign(["a", "b"], ["a", "b", "c"], [("a", "c"), ("b", None)])
    assert found.sources == {"a": "c"}
    assert found.fresh == ("b",)


def test_missing_and_unexpected_names_are_both_listed():
    wanted = ["target/head", *(f"target/new_{i:02}" for i in range(22))]
    with pytest.raises(UserError) as e:
        assign(wanted, OLD, where="Checkpoint /x/checkpoint_1")
    message = str(e.value)
    assert message.startswith("Checkpoint /x/checkpoint_1 does not fit the model")
    assert "missing in it (22): target/new_00, target/new_01, " in message
    assert "target/new_19 and 2 more" in message
    assert "in it but not in the model (4): target/encoder/layers_0/kernel" in message
    assert "fallback_to_scratch = True" in message
    assert "strict = False" in message
    found = assign(wanted, OLD, strict=False, fallback_to_scratch=True)
    assert found.fresh == tuple(wanted[1:])
    assert assign(wanted, OLD, strict=False, optional=wanted[1:]).fresh == tuple(wanted[1:])


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (("(", "x"), "is not a regular expression"),
        (("target/head", r"\3"), "has the replacement"),
        (("target/head", "target/hed"), "has no 'target/hed'.*Did you mean 'target/head'"),
    ],
)
def test_a_wrong_rule_is_named(rule, complaint):
    with pytest.raises(UserError, match=complaint):
        assign(["target/head"], OLD, [rule])


def loop_params():
    rng = np.random.RandomState(0)
    shapes = {"wi/kernel": (4, 6), "norm/scale": (4,)}
    params = {
        f"{stack}/layers_{i}/{name}": rng.rand(*shape).astype(np.float32)
        for stack in ("encoder", "decoder")
        for i in range(11)
        for name, shape in shapes.items()
    }
    return {**params, "token_embedder/embedding": rng.rand(8, 4), "side/encoder/layers_0/x": 1.0}


def test_stacked_and_separate_layers_turn_into_each_other():
    loop = loop_params()
    scan = paths.flatten(paths.loop_to_scan(paths.unflatten(loop)))
    assert is_stacked(loop) is False
    assert is_stacked(scan) is True
    for given, expected in ((loop, scan), (scan, loop), (loop, loop), (scan, scan)):
        found = convert(dict(given), expected)
        assert found.keys() == expected.keys()
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_a_first_layer_that_differs_stays_apart():
    loop = loop_params()
    loop = {name: x for name, x in loop.items() if not name.startswith("decoder/")}
    del loop["encoder/layers_0/norm/scale"]
    scan = paths.flatten(paths.loop_to_scan(paths.unflatten(loop), before=1))
    assert scan["encoder/encoder/norm/scale"].shape == (4, 10)
    assert scan["encoder/encoder/wi/kernel"].shape == (4, 10, 6)
    assert is_stacked(scan) is True
    for given, expected in ((loop, scan), (scan, loop), (scan, scan)):
        found = convert(dict(given), expected)
        assert found.keys() == expected.keys()
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_a_gap_in_the_layers_is_an_error():
    loop = loop_params()
    del loop["encoder/layers_4/wi/kernel"]
    with pytest.raises(ValueError, match="encoder/encoder/wi/kernel are numbered"):
        convert(loop, ["encoder/encoder/wi/kernel"])

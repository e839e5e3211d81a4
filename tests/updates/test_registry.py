"""The folder of all updates of a model."""

import json
from unittest.mock import Mock

import pytest

from ckl_jax.errors import UserError
from ckl_jax.updates import registry
from ckl_jax.updates.registry import Registry


def fill(root, bases):
    """Writes finished updates, {name: the one that it began with}."""
    for name, base in bases.items():
        folder = root / "updates" / name
        (folder / "model").mkdir(parents=True)
        record = {"base": base, "method": "lora", "date": "2026-01-01", "since": None}
        (folder / "update.json").write_text(json.dumps(record))
        (folder / "verdict.json").write_text("{}")
        (folder / "sentences.npy").write_text("")


@pytest.mark.parametrize(("keep", "left"), [(1, ["0005"]), (2, ["0002", "0004", "0005"])])
def test_what_a_rollback_goes_back_to_stays(keep, left, tmp_path):
    bases = {"0001": None, "0002": "0001", "0003": "0002", "0004": "0002", "0005": "0002"}
    fill(tmp_path, bases)  # the third and the fourth did not ship
    (tmp_path / "current").write_text("0005\n")
    Registry(tmp_path).clean(keep)
    assert [p.parent.name for p in sorted(tmp_path.glob("updates/*/model"))] == left


def test_the_base_of_an_adapter_stays(tmp_path):
    fill(tmp_path, {"0001": None, "0002": "0001", "0003": "0002", "0004": "0003"})
    for current in ("0003", "0004"):
        (tmp_path / "updates" / current / "adapter").mkdir()
        (tmp_path / "current").write_text(f"{current}\n")
        Registry(tmp_path).clean(1)
    left = sorted(f"{p.parent.name} {p.name}" for p in tmp_path.glob("updates/*/[am]*"))
    assert left == ["0003 model", "0004 adapter", "0004 model"]


def test_a_registry_is_begun_by_one_file(tmp_path, monkeypatch):
    """A kill between two would leave a folder that is refused for ever."""
    monkeypatch.setattr(registry.files, "write_json", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Registry.open(tmp_path / "out", "model").create()
    assert not (tmp_path / "out").exists()


def test_a_first_model_that_was_moved_is_named(tmp_path):
    model = tmp_path / "model"
    Registry.open(tmp_path / "new", str(model)).create()
    fill(tmp_path / "new", {"0001": None})
    (tmp_path / "new" / "current").write_text("0001")
    for given in (lambda r: r.roll_back(), lambda r: Registry.open(r.root, str(tmp_path / "here"))):
        with pytest.raises(UserError, match="write where it is now as 'model' into .*registry.jso"):
            given(Registry(tmp_path / "new"))
    assert Registry(tmp_path / "new").current == "0001"
    (tmp_path / "new" / "current").unlink()
    with pytest.raises(UserError, match="write where it is now as 'model' into .*registry.jso"):
        str(Registry(tmp_path / "new").current_model)
    (tmp_path / "new" / "current").write_text("0001")
    model.mkdir()
    with pytest.raises(UserError, match="give another --out.$"):
        Registry.open(tmp_path / "new", str(tmp_path / "here"))
    assert Registry(tmp_path / "new").roll_back() == str(model)
    (tmp_path / "new" / "registry.json").write_text('{"format": 1, "model": "some/name"}')
    (tmp_path / "new" / "current").write_text("0001")
    assert Registry(tmp_path / "new").roll_back() == "some/name"

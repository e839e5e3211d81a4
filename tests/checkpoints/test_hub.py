"""Names of Hugging Face's hub, by a cache that is made here; the network is never asked."""

import json
import re

import pytest

hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
errors = pytest.importorskip("huggingface_hub.errors")

from ckl_jax.checkpoints.hub import folder_of  # noqa: E402
from ckl_jax.errors import UserError  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub's cache with one model, without a network."""
    held = tmp_path / "hub" / "models--Org--tiny"
    (held / "snapshots" / COMMIT).mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (held / "snapshots" / COMMIT / name).write_text("{}")
    (held / "refs").mkdir()
    (held / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return held / "snapshots" / COMMIT


def test_a_name_is_the_folder_in_the_cache_unless_there_is_a_folder(cache, tmp_path):
    assert folder_of("Org/tiny") == str(cache)
    (tmp_path / "Org" / "tiny").mkdir(parents=True)
    assert folder_of("Org/tiny") == "Org/tiny"
    # A folder that is missing is told as before, not looked for on the network.
    assert folder_of("Org/other") == "Org/other" and folder_of("/no/where") == "/no/where"


def test_what_is_not_there_is_said_with_the_command_that_fetches_it(cache, monkeypatch):
    told = "no model of that name in .*hub; HF_HUB_OFFLINE is set. `hf download Org/other` where"
    with pytest.raises(UserError, match=told):
        folder_of("Org/other")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    failures = {
        "the hub cannot be reached. `hf download": OSError("no route"),
        "asks for its terms": errors.GatedRepoError,
        "the hub has none either": errors.RepositoryNotFoundError,
    }
    for said, failure in failures.items():

        def download(name, *, allow_patterns, local_files_only=False, failure=failure):
            if local_files_only:
                raise errors.LocalEntryNotFoundError("not cached")
            raise failure if isinstance(failure, OSError) else failure.__new__(failure)

        monkeypatch.setattr(hub, "snapshot_download", download)
        with pytest.raises(UserError, match=said):
            folder_of("Org/other")


def test_models_without_an_owner_are_asked_for_and_mistyped_folders_are_not(cache, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    asked = []

    def download(name, *, allow_patterns, local_files_only=False):
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not cached")
        asked.append(name)
        return f"fetched/{name}"

    monkeypatch.setattr(hub, "snapshot_download", download)
    known = ["gpt2", "gpt2-large", "bert-base-cased", "distilroberta-base", "t5-small"]
    assert [folder_of(name) for name in [*known, "lora"]] == [
        *(f"fetched/{n}" for n in known),
        "lora",
    ]
    assert asked == known


@pytest.mark.parametrize(
    ("held", "lacks"),
    [
        (("config.json", "tokenizer.json"), "model.safetensors and model.safetensors.index.json"),
        (("config.json", "tokenizer.json", "a.safetensors"), "b.safetensors"),
        (("tokenizer.json", "model.safetensors"), "config.json"),
        (("config.json", "model.safetensors"), "a tokenizer"),
    ],
)
def test_what_a_snapshot_lacks_is_fetched_or_said(held, lacks, cache, monkeypatch):
    for file in cache.iterdir():
        file.unlink()
    for name in held:
        (cache / name).write_text("{}")
    if "a.safetensors" in held:
        index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
        (cache / "model.safetensors.index.json").write_text(json.dumps(index))
    if lacks == "a tokenizer":  # which a model need not have
        assert folder_of("Org/tiny") == str(cache)
    else:
        told = f"lacks {lacks}; HF_HUB_OFFLINE is set. `hf download Org/tiny` where"
        with pytest.raises(UserError, match=re.escape(told)):
            folder_of("Org/tiny")
    if "tokenizer.json" in held:
        assert folder_of("Org/tiny", weights=False) == str(cache)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    whole = hub.snapshot_download

    def download(name, *, allow_patterns, local_files_only=False):
        if local_files_only:
            return whole(name, local_files_only=True)
        asked.append(name)
        for file in came:
            (cache / file).write_text("{}")
        return str(cache)

    asked, came = [], ()
    monkeypatch.setattr(hub, "snapshot_download", download)
    if lacks != "a tokenizer":
        with pytest.raises(UserError, match="and the hub gave no more: .* `hf download Org/tiny`"):
            folder_of("Org/tiny")
    came = ("config.json", "model.safetensors", "b.safetensors", "tokenizer.json")
    assert folder_of("Org/tiny") == str(cache) and set(asked) == {"Org/tiny"}

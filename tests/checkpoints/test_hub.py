"""Names of Hugging Face's hub, by a cache that is made here; the network is never asked."""

import pytest

hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_constants")
errors = pytest.importorskip("huggingface_errors")

from ckl_jax.checkpoints.hub import folder_of  # noqa: E402
from ckl_jax.errors import UserError  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub's cache with one model, without a network."""
    held = tmp_path / "hub" / "models--Org--tiny"
    (held / "snapshots" / COMMIT).mkdir(parents=True)
    (held / "snapshots" / COMMIT / "config.json").write_text("{}")
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

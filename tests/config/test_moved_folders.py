"""Model folders that were moved find the copy of their vocabulary."""

from ckl_jax.config import moved_folders
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.data.text.vocabulary_copy import save_copy

GIN = "VOCABULARY = @vocabularies.Vocabulary()\n"


def test_the_copy_is_read_where_the_vocabulary_is_not_what_was_copied(tmp_path, monkeypatch):
    run, source = tmp_path / "run", tmp_path / "data" / "vocabulary.model"
    (run / "checkpoint_1").mkdir(parents=True)
    source.parent.mkdir()
    train_vocabulary(["letters: abcdefghijklmnopqrstuvwxyz"], source, 60)
    sound = source.read_bytes()
    monkeypatch.chdir(tmp_path)
    save_copy(Vocabulary("data/vocabulary.model"), run)

    def translated():
        return moved_folders.translate(run / "config.gin", GIN)

    assert translated() == GIN
    source.write_bytes(sound + b"of another run")
    assert "open_copy" in translated()
    source.unlink()
    assert "open_copy" in translated()
    source.write_bytes(sound)
    assert translated() == GIN

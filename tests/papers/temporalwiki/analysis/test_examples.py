"""Facts and the sentences that state them."""

import json
import types

import pytest

from ckl_jax.papers.temporalwiki.analysis import examples
from ckl_jax.papers.temporalwiki.data.algorithm1 import DELETED, NEW


def stated(monkeypatch, tmp_path, fact, title, text, page_map=None):
    """The sentence that is shown of a fact, of a diffset with a page 7 and one with that title."""
    (tmp_path / "probes").mkdir()
    row = {"subject": "S", "relation": "led by", **fact}
    (tmp_path / "probes/one_changed.jsonl").write_text(json.dumps(row))
    records = [
        {"page_id": 8, "title": "7", "kind": NEW, "text": f"{fact['object']} is in no."},
        {"page_id": 7, "title": title, "kind": DELETED, "text": f"{fact['object']} is gone."},
        {"page_id": 7, "title": title, "kind": NEW, "text": text},
    ]
    monkeypatch.setattr(examples, "read_records", lambda folder: iter(records))
    settings = {"page_map": page_map}
    study = types.SimpleNamespace(root=tmp_path, intervals=["one"], label=str, settings=settings)
    (row,) = examples.aligned(study).rows
    return row[-1].text


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("Ada Byron", {}, "Ada Byron"),
        ("Ada Byron", {}, "Ada BYRON"),
        ("Paris", {}, "Paris"),
        ("Washington D.C.", {}, "Washington, D.C."),
        ("United States", {"aliases": ["US"]}, "the US army"),
        ("東京", {}, "東京都"),
    ],
)
@pytest.mark.parametrize("title", ["Gamma Bank", "Gamma_Bank"])
def test_the_sentence_is_found_as_it_was_aligned(tmp_path, monkeypatch, name, more, said, title):
    fact = {"object": name, "page": "Gamma Bank", **more}
    text = f"It is a bank in the USA. It has no comparison. It is led by {said}. It has a roof."
    assert stated(monkeypatch, tmp_path, fact, title, text) == f"It is led by {said}."


def test_pages_are_numbers_with_a_page_map(tmp_path, monkeypatch):
    fact = {"object": "Ada Byron", "page": "7"}
    text = "It is a bank. It is led by Ada Byron."
    shown = stated(monkeypatch, tmp_path, fact, "Gamma Bank", text, page_map="map.tsv")
    assert shown == "It is led by Ada Byron."

"""Facts and the sentences that state them."""

import json
import types

import pytest

from ckl_jax.papers.temporalwiki.analysis import examples, results


@pytest.mark.parametrize(
    "page, title, name",
    [
        ("Gamma Bank", "Gamma Bank", "Ada Byron"),
        ("Gamma Bank", "Gamma_Bank", "Ada Byron"),
        ("Gamma Bank", "Gamma Bank", "Ada BYRON"),
    ],
)
def test_the_sentence_is_found_as_it_was_aligned(tmp_path, monkeypatch, page, title, name):
    (tmp_path / "probes").mkdir()
    (tmp_path / "data/one/diffset").mkdir(parents=True)
    fact = {"subject": page, "relation": "led by", "object": "Ada Byron", "page": page}
    (tmp_path / "probes/one_changed.jsonl").write_text(json.dumps(fact))
    text = f"It is a bank. It is led by {name}. It has a roof."
    document = {"id": "1", "title": title, "text": text, "date": "2024-01-01"}
    (tmp_path / "data/one/diffset/new.jsonl").write_text(json.dumps(document))
    monkeypatch.setattr(results, "manifests", lambda *given: {"one": {"documents": "new.jsonl"}})
    study = types.SimpleNamespace(root=tmp_path, intervals=["one"], label=str)
    (row,) = examples.aligned(study).rows
    assert [cell.text for cell in row] == [
        "one",
        page,
        "led by",
        "Ada Byron",
        f"It is led by {name}.",
    ]

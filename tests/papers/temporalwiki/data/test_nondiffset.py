"""NON-Diffset text: what is left of a snapshot, against the timeline's truth."""

import collections

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl, write_jsonl
from ckl_jax.papers.temporalwiki.data.diffsets import Options, build, plan, read_records
from ckl_jax.papers.temporalwiki.data.nondiffset import remaining, write_nondiffset
from ckl_jax.world.dump_files import write_dumps
from ckl_jax.world.months import months
from ckl_jax.world.timeline import make_world
from tests.real_data import wikipedia_excerpt


def test_paragraphs_and_sentences_that_are_new_are_left_out():
    split = sentence_splitter("en")
    text = "Old one. Old two.\nAll new here.\nOld three. A new one. Old four. New end."
    records = [
        {"kind": "paragraph", "text": "All new here."},
        {"kind": "sentences", "text": "A new one. New end."},
        {"kind": "deleted", "text": "Old one."},
    ]
    assert remaining(text, records, split) == "Old one. Old two.\nOld three. Old four."
    assert remaining(text, records[2:], split) == text
    assert remaining(text, [{"kind": "new", "text": text}], split) == ""
    # The library takes "D." for an initial here, but not where a sentence stands between.
    sentences = ["It has a lower D.", "Old.", "Harry played it."]
    piece = [{"kind": "sentences", "text": "It has a lower D. Harry played it."}]
    assert split(piece[0]["text"]) == [piece[0]["text"]]
    assert remaining(" ".join(sentences), piece, lambda paragraph: sentences) == "Old."


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two months of the simulated world: the diffset between them, and the whole second one."""
    folder = tmp_path_factory.mktemp("rest")
    world = make_world(0, "tiny", "legacy")
    dates = list(write_dumps(world, folder, 3)["dates"].values())
    old, new = (folder / dates[i]["wikipedia"] for i in (0, 2))
    build(plan(old, new, folder / "diff", Options(deletions=True)))
    build(plan(None, new, folder / "whole", Options()))
    (snapshot,) = (folder / "whole").glob("wikipedia_*.jsonl")
    first, _, last = months(world, 3)
    return folder, snapshot, first, last


def test_the_rest_is_every_sentence_that_was_there_before(built):
    folder, snapshot, old, new = built
    counts = write_nondiffset(snapshot, folder / "diff", folder / "rest.jsonl")
    found = {int(d.id): d.text for d in read_documents(folder / "rest.jsonl")}
    expected = {}
    for number, page in new.pages.items():
        before = old.pages.get(number)
        if page.redirect or before is None or before.redirect:
            continue
        known = {s for p in before.paragraphs for s in p}
        kept = [" ".join(s.text for s in p if s in known) for p in page.paragraphs]
        if any(kept):
            expected[number] = "\n".join(filter(None, kept))
    assert found == expected
    assert counts["cut"] > 0 and counts["nothing left"] > 0
    assert counts["whole"] + counts["cut"] == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("dates", [("20120104", "20150112"), ("20150305", "20160501")])
def test_diffset_and_rest_make_up_real_pages(dates, tmp_path):
    """Character by character, blanks aside."""
    old, new = (wikipedia_excerpt(f"enwiki-{date}") for date in dates)
    build(plan(old, new, tmp_path / "diff", Options()))
    whole = build(plan(None, new, tmp_path / "whole", Options()))
    snapshot = tmp_path / "whole" / whole["documents"]
    counts = write_nondiffset(snapshot, tmp_path / "diff", tmp_path / "rest.jsonl")
    assert counts["cut"] > 3
    found = collections.Counter()
    for document in read_documents(tmp_path / "rest.jsonl"):
        found[int(document.id)] += letters(document.text)
    for record in read_records(tmp_path / "diff"):
        found[record["page_id"]] += letters(record["text"])
    assert found == {int(d.id): letters(d.text) for d in read_documents(snapshot)}


def letters(text):
    return len("".join(text.split()))


def test_a_fraction_is_drawn_and_streams_out_of_order_are_refused(built, capsys):
    folder, snapshot, _, _ = built
    argv = ["--snapshot", str(snapshot), "--diffset", str(folder / "diff")]
    out = str(folder / "some.jsonl")
    assert ckl.main(["data", "nondiffset", *argv, "--out", out, "--fraction", "0.5"]) == 0
    some = [d.id for d in read_documents(out)]
    assert 0.2 < len(some) / len(list(read_documents(folder / "rest.jsonl"))) < 0.8
    backwards = folder / "backwards.jsonl"
    write_jsonl(backwards, reversed(list(read_jsonl(snapshot))))
    with pytest.raises(UserError, match=r"backwards.jsonl: page \d+ follows page \d+"):
        write_nondiffset(backwards, folder / "diff", folder / "no.jsonl")
    assert ckl.main(["data", "nondiffset", *argv, "--out", f"{out}2", "--fraction", "2"]) == 2
    assert "fraction is 2.0; give a number in (0, 1]" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"Nothing is left to write: .* 0 were drawn \(--fraction"):
        write_nondiffset(snapshot, folder / "diff", folder / "none.jsonl", fraction=1e-9)
    with pytest.raises(UserError, match="Nothing is left to write"):
        write_nondiffset(snapshot, folder / "whole", folder / "none.jsonl")
    assert not (folder / "none.jsonl").exists()

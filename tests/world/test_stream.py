"""The simulated stream: what is said is true on the day, and it goes stale."""

import collections
import itertools

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.questions import read_questions
from ckl_jax.data.text.documents import canonical_key, read_documents
from ckl_jax.errors import UserError
from ckl_jax.world import stream as module
from ckl_jax.world.render import say
from ckl_jax.world.stream import MONTHS, SIZES, stream, stream_world, trends
from ckl_jax.world.stream_text import TOPICS, tokenised
from ckl_jax.world.templates import CHANGING, RELATIONS
from tests.world.memoriser import recited


@pytest.fixture(scope="module")
def documents():
    return list(stream(0, "tiny"))


def test_a_stream_is_in_order_and_tokenised(documents):
    assert len(documents) == MONTHS * SIZES["tiny"].documents
    assert documents == sorted(documents, key=canonical_key)
    months = collections.Counter(d.date[:7] for d in documents)
    assert len(months) == MONTHS and set(months.values()) == {SIZES["tiny"].documents}
    for document in documents:
        lines = document.text.split("\n")
        for line in lines:
            assert line.split()[-1] == "." and not line.split()[-2].endswith(".")
            assert not set("{}[]|") & set(line)
    assert tokenised("On 3 May 2018, {0} left.") == "On 3 May 2018 , {0} left ."


def test_the_same_seed_gives_the_same_stream(documents):
    assert list(itertools.islice(stream(0, "tiny"), 100)) == documents[:100]
    assert list(itertools.islice(stream(1, "tiny"), 100)) != documents[:100]
    with pytest.raises(UserError, match="No stream has the size 'smal'.*Did you mean 'small'"):
        next(stream(0, "smal"))


def test_offices_change_hands_without_a_gap():
    world = stream_world(0, "tiny")
    holders = collections.defaultdict(list)
    for fact in world.facts:
        if world.kind(fact) == CHANGING:
            holders[fact.subject, fact.relation].append(fact)
    for facts in holders.values():
        facts.sort(key=lambda f: f.valid_from)
        for old, new in itertools.pairwise(facts):
            assert old.valid_to == new.valid_from and old.object != new.object
        assert facts[-1].valid_to == ""
        assert all(world.entities[f.object].since <= f.valid_from for f in facts)
    assert max(map(len, holders.values())) > 3


def test_what_is_said_is_true_on_its_day(documents):
    world = stream_world(0, "tiny")
    held = collections.defaultdict(list)
    for fact in world.facts:
        if fact.relation == "prime_minister":
            for wording in RELATIONS["prime_minister"].trained_sentences:
                held[tokenised(say(world, fact, wording))].append(fact)
    said = [(d.date, line) for d in documents for line in d.text.split("\n") if line in held]
    assert len(said) > 100
    assert all(any(f.holds(date) for f in held[line]) for date, line in said)


def test_no_question_stands_in_the_stream_and_none_is_about_a_control(documents, tmp_path):
    world = stream_world(0, "tiny")
    assert main(["data", "questions", "--size", "tiny", "--out", str(tmp_path / "ask.jsonl")]) == 0
    items = overlap.read_items(tmp_path / "ask.jsonl")
    texts = [line for d in documents for line in d.text.split("\n")]
    found = overlap.measure({"questions": items}, {"text": texts})["questions"]["text"]
    assert found.items > 100 and found.exact == 0
    assert recited(items[:: len(items) // 60], texts) < 0.1
    places = {q.place for q in read_questions(tmp_path / "ask.jsonl")}
    # Nor does the text state a fact that is asked about in a relation's own wording.
    own = {
        tokenised(say(world, fact, wording)): world.name(fact.subject)
        for fact in world.facts
        for wording in (*RELATIONS[fact.relation].state, *RELATIONS[fact.relation].news)
    }
    stated = {own[text] for text in texts if text in own}
    assert len(stated) > 20 and not stated & places


def test_new_words_come_up_in_their_month_and_fade(documents):
    used = collections.defaultdict(list)
    for i, document in enumerate(documents):
        for word in set(document.text.split()):
            used[word].append(i // SIZES["tiny"].documents)
    found = trends(0, "tiny")
    assert {t.topic for t in found} == set(TOPICS)
    assert all(min(used[t.word], default=t.month) >= t.month for t in found)
    late = [t for t in found if t.month >= 33]
    assert sum(len(used[t.word]) for t in late) > 100
    assert found[0].at(found[0].month - 1) == 0
    peak = found[0].month + 2
    assert found[0].at(peak) > found[0].at(peak + 20) > 0


def test_the_command(tmp_path, capsys, documents, monkeypatch):
    real = module.stream
    monkeypatch.setattr(module, "stream", lambda *a: itertools.islice(real(*a), 100))
    out = tmp_path / "x.jsonl.gz"
    assert main(["data", "stream", "--size", "tiny", "--out", str(out)]) == 0
    assert list(read_documents(out)) == documents[:100]
    assert main(["data", "stream", "--size", "huge", "--out", str(out)]) == 2
    assert "--size is 'huge'; choose from tiny" in capsys.readouterr().err

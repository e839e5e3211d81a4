"""CKL's probes out of dated facts and text, held to the timeline of the simulated world."""

import collections
import gzip
import json

import pytest

pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl
from ckl_jax.data.facts import templates
from ckl_jax.data.facts.ckl_files import BLANK, CORPORA, read_corpus, read_probe
from ckl_jax.data.facts.dated_facts import DatedFact
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.data.text.documents import Document, read_documents
from ckl_jax.data.text.spans import fill_spans
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, read_jsonl, write_jsonl
from ckl_jax.papers.ckl.data import benchmark
from ckl_jax.papers.ckl.data.benchmark import NEW_LAMA_EASY, Options
from ckl_jax.papers.ckl.data.evidence import Watch
from ckl_jax.papers.ckl.data.recent_sentences import _choice, blanked, question
from ckl_jax.papers.ckl.data.training_rows import Parts
from ckl_jax.world.ckl import build_world
from ckl_jax.world.facts import occurs_in
from ckl_jax.world.render import say
from ckl_jax.world.timeline import make_world
from tests.papers.mind_the_gap.data.dated_rows import YEAR, fact_row
from tests.real_data import shared_data


@pytest.fixture(scope="module")
def world():
    return make_world(0, "tiny", "legacy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of that world."""
    directory = tmp_path_factory.mktemp("world")
    build_world(directory, 0, "tiny", variant="legacy")
    return directory


def build(folder, world, out, **options):
    return benchmark.build(
        [folder / "facts.jsonl"],
        [folder / "documents_d0.jsonl", folder / "documents_d1.jsonl"],
        (world.before, world.after),
        out,
        Options(templates=str(folder / "relations.jsonl"), **options),
    )


@pytest.fixture(scope="module")
def built(folder, world, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "probes"
    build(folder, world, out)
    return out


def truth(world, pairs):
    """(statement, answers, old answers) of (old fact or None, new fact), by the timeline."""
    return {
        (
            world.relations[new.relation].cloze.format(s=world.name(new.subject), o=BLANK),
            world.answers(new.object),
            world.answers(old.object) if old else (),
        )
        for old, new in pairs
        if not occurs_in(world.entities[new.object], world.entities[new.subject])
    }


def items(name, directory):
    return {(i.input, i.answers, i.old_answers) for i in read_probe(name, directory)}


# --- the simulated world


def test_the_probes_of_facts_are_the_timelines(world, built):
    assert items("updated_lama", built) == truth(world, world.updated())
    assert items("new_lama", built) == truth(world, [(None, f) for f in world.new()])
    lasting = [(None, f) for f in world.invariant()]
    # One answer alone, as in the published file.
    assert items("invariant_lama", built) == {(s, a[:1], o) for s, a, o in truth(world, lasting)}


def test_each_item_has_the_question_of_its_relation(world, built):
    for name in ("invariant_lama", "updated_lama", "new_lama"):
        for item in read_probe(name, built):
            asked = world.relations[item.relation]
            before, after = asked.cloze.format(s="|", o=BLANK).split("|")
            subject = item.input.removeprefix(before).removesuffix(after)
            assert item.question == asked.question.format(s=subject)


def test_sentences_of_both_corpora_bear_out_every_item(folder, world, built, tmp_path):
    build(folder, world, tmp_path / "out", evidence="require")
    for name in ("updated_lama", "invariant_lama"):
        assert items(name, tmp_path / "out") == items(name, built)
    # What is new stands in no sentence of D0 unless two entities met there otherwise.
    lost = items("new_lama", built) - items("new_lama", tmp_path / "out")
    assert len(lost) < 0.05 * len(items("new_lama", built))


def test_evidence_names_subject_and_answer(folder, built):
    paths = [folder / f"documents_{side}.jsonl" for side in ("d0", "d1")]
    documents = {d.id: d for path in paths for d in read_documents(path)}
    found = {(n, i.id): i for n in ("updated_lama", "new_lama") for i in read_probe(n, built)}
    rows = [r for r in read_jsonl(built / "evidence.jsonl") if (r["probe"], r["id"]) in found]
    assert {(r["side"], r["answer"]) for r in rows} >= {("D0", "old"), ("D1", "new")}
    for row in rows:
        item, document = found[row["probe"], row["id"]], documents[row["document"]]
        answers = item.answers if row["answer"] == "new" else item.old_answers
        assert row["sentence"] in document.text and row["date"] == document.date
        assert any(a in row["sentence"] for a in answers)


def test_new_lama_easy_blanks_an_entity_of_a_sentence_that_reports_something_new(world, built):
    said = collections.defaultdict(set)
    for fact in world.begun():
        relation = world.relations[fact.relation]
        for template in (*relation.news, *relation.state):
            names = {world.name(fact.subject), world.name(fact.object)}
            said[say(world, fact, template)] |= names
    found = read_probe("new_lama_easy", built)
    filled = [i.input.replace(BLANK, i.answers[0]) for i in found]
    assert len(found) > 50 and set(filled) <= said.keys()
    right = [i.answers[0] in said[text] for i, text in zip(found, filled, strict=True)]
    assert sum(right) / len(right) > 0.95  # the finder cuts a name now and then
    assert all(BLANK not in i.question and i.question.endswith("?") for i in found)


def test_every_fact_and_candidate_is_accounted_for(folder, built):
    manifest = read_json(built / "manifest.json")
    counts, kept = manifest["counts"], manifest["items"]
    read = sum(1 for _ in read_jsonl(folder / "facts.jsonl"))
    reasons = [n for what, n in counts.items() if what.startswith("facts ")]
    assert counts["facts read"] == read == sum(reasons) - read
    pages = sum(1 for _ in read_documents(folder / "documents_d0.jsonl"))
    assert manifest["documents"]["D0"] == pages
    assert all(len(read_probe(n, built)) == kept[n] for n in kept) and NEW_LAMA_EASY in kept


def test_the_same_input_gives_the_same_bytes(folder, world, built, tmp_path):
    build(folder, world, tmp_path / "out")
    for path in built.rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(built)).read_bytes() == path.read_bytes()


# --- training rows, SMALL and its halves


@pytest.fixture(scope="module")
def trained_on(folder, world, tmp_path_factory):
    out = tmp_path_factory.mktemp("rows") / "mine"
    build(folder, world, out, training_rows=True, row_words=0, row_spans=1, small=0.5)
    return out


def test_documents_become_ckls_corpora(folder, trained_on, tmp_path):
    rows = {n: list(read_corpus(trained_on / path)) for n, path in CORPORA.items()}
    assert {n: len(r) for n, r in rows.items()} == read_json(trained_on / "manifest.json")["rows"]
    for side in ("d0", "d1"):
        texts = " ".join(d.text for d in read_documents(folder / f"documents_{side}.jsonl"))
        for row in rows[side]:
            assert fill_spans(row["input"], row["output"]) == row["original"]
            assert row["input"].count("<extra_id_") == 1 and row["original"] in texts
    small, parts = rows["d1_small"], [*rows["p1"], *rows["p2"]]
    assert sorted(map(str, parts)) == sorted(map(str, small)) and rows["p1"] and rows["p2"]
    for part, whole in (("d1_small", "d1"), ("d0_small", "d0")):
        assert not collections.Counter(map(str, rows[part])) - collections.Counter(
            map(str, rows[whole])
        )
        assert 0.25 < len(rows[part]) / len(rows[whole]) < 0.75
    prepared = prepare_ckl(trained_on, tmp_path / "prepared", vocab_size=300)
    assert sorted(prepared.tasks) == sorted(CORPORA)


def test_new_lama_easy_has_the_parts_of_small(trained_on, built):
    whole, small, p1, p2, rest = (
        {i.id: i for i in read_probe(f"new_lama_easy{part}", trained_on)}
        for part in ("", "_small", "_p1", "_p2", "_5000")
    )
    for part in (small, p1, p2, rest):
        assert all(
            whole[key].input == item.input and item.answers == whole[key].answers
            for key, item in part.items()
        )
    assert p1.keys() | p2.keys() == small.keys() and small.keys() | rest.keys() == whole.keys()
    assert not p1.keys() & p2.keys() and not small.keys() & rest.keys()
    half = read_json(trained_on / "manifest.json")["half"]
    assert max(i.meta["date"] for i in p1.values()) < half
    assert min(i.meta["date"] for i in p2.values()) >= half
    read = {row["original"] for row in read_corpus(trained_on / CORPORA["d1_small"])}
    filled = {key: i.input.replace(BLANK, i.answers[0]) for key, i in whole.items()}
    assert {key for key in whole if filled[key] in read} >= small.keys()
    assert items("new_lama_easy", trained_on) == items("new_lama_easy", built)


def test_halves_of_small():
    days = {"2021-01-01": 1, "2021-01-02": 5, "2021-01-03": 5, "2021-02-01": 1}
    assert Parts(0.5).halved(days).half == "2021-01-03"  # 6 before it, 6 from it on
    assert Parts(0.5).halved({"2021-01-01": 9}).half == ""  # a diffset is of one day
    assert Parts(0.5, "2021-02-01").halved(days).half == "2021-02-01"
    for day in ("2021-01-01", "2021-02-02"):
        with pytest.raises(UserError, match="2021-01-01 to 2021-02-01; give a day after"):
            Parts(0.5, day).halved(days)
    assert all(Parts(1.0).is_small(str(i)) and not Parts(0.0).is_small(str(i)) for i in range(99))


def test_text_that_is_masked_already_is_left_out_and_counted(make, tmp_path):
    documents = [
        {"id": i, "date": "2021-02-01", "text": f"Ada Lovelace saw {what} in Paris on 3 May 2021."}
        for i, what in enumerate(("Bob", "<extra_id_3>"))
    ] + [{"id": 2, "date": "2021-02-01", "text": "we like it very much here."}]
    _, counts = make([fact_row("Oslo", "Ann Lee", "2021-03-01")], documents, training_rows=True)
    assert counts["documents with sentinels of their own, not trained on"] == 1
    assert counts["rows without an entity to mask, not trained on"] == 1
    assert len(list(read_corpus(tmp_path / "out" / CORPORA["d1"]))) == 1


# --- facts of one's own


@pytest.fixture
def make(tmp_path):
    """Builds from rows of facts and documents, between the ends of 2020 and 2021."""

    def run(rows, documents=(), **options):
        write_jsonl(tmp_path / "facts.jsonl", rows)
        write_jsonl(tmp_path / "text.jsonl", documents)
        corpora = [tmp_path / "text.jsonl"] if documents else []
        out = tmp_path / "out"
        manifest = benchmark.build(
            [tmp_path / "facts.jsonl"],
            corpora,
            YEAR,
            out,
            Options(**options),
            replace=True,
        )
        return {name: read_probe(name, out) for name in manifest["items"]}, manifest["counts"]

    return run


def test_what_is_updated_new_or_neither(make):
    probes, counts = make(
        [
            fact_row("Aland", "Ann", end="2021-03-01"),
            fact_row("Aland", "Ben", "2021-03-01"),
            fact_row("Bland", "Cy"),
            fact_row("Cland", "Di", "2021-05-01"),
            fact_row("Dland", "Ed", end="2021-05-01"),
            fact_row("Eland", "Flo", "2022-01-01"),
            fact_row("Gland", "Hal", end="?"),
            fact_row("Hland", "Ida", end="2021-02-00"),
            fact_row("Hland", "ida.", "2021-02-00"),
            fact_row("Iland", "Jo", kind="event"),
            fact_row("Jland", "Kim", relation="P999"),
        ]
    )
    (updated,), (new,) = probes["updated_lama"], probes["new_lama"]
    assert updated.input == f"The head of government of Aland is {BLANK}."
    assert (updated.answers, updated.old_answers) == (("Ben",), ("Ann",))
    assert updated.question == "Who is the head of government of Aland?"
    assert (new.answers, new.meta["date"]) == (("Di",), "2021-05-01")
    assert counts["facts that ended, or begin later"] == 2
    assert counts["facts that did not change"] == 3  # Cy's, and Ida in two spellings
    assert counts["facts whose dates are not exact enough"] == 1  # Hal may have ended before
    assert counts["facts that are events, no states"] == counts["no template: P999"] == 1


def test_a_date_without_day_or_month_may_decide_and_may_not():
    fact = DatedFact("A", "P6", "B", valid_from="2019-00-00", valid_to="2021-05")
    days = {
        "2018-12-31": False,
        "2019-06-01": None,
        "2019-12-31": True,
        "2021-04-30": True,
        "2021-05-09": None,
        "2021-05-31": False,
    }
    assert {day: fact.holds(day) for day in days} == days
    assert DatedFact("A", "P6", "B").holds("2021-01-01") is True
    assert DatedFact("A", "P6", "B", seen=("2024-03",)).holds("2024-03-15") is True


def test_the_filters_of_invariant_lama(make):
    probes, counts = make(
        [
            fact_row("Lyon", "France", relation="P17"),
            fact_row("Lyon", "France", relation="P17"),
            fact_row("University of Leeds", "Leeds", relation="P131"),
            fact_row("Hutterite German", "bavarian", relation="P279"),
            fact_row("_____ & Sons", "Leeds", relation="P740"),
            fact_row("Sons", "[MASK] Leeds", relation="P740"),
            fact_row("Ann", "Leeds", relation="P108"),
        ]
    )
    (item,) = probes["invariant_lama"]
    assert (item.input, item.answers) == (f"Lyon is located in {BLANK} .", ("France",))
    assert item.question == "In which country is Lyon located?"
    assert counts["invariant_lama: a name looks like a blank"] == 2
    for why in ("a repeat", "the answer is in the subject", "the answer is not an entity"):
        assert counts[f"invariant_lama: {why}"] == 1


def test_a_name_is_an_entity_however_a_corpus_writes_the_word(make):
    text = "It was nice. They are nice people. A nice day is nice for nice people in Oslo."
    probes, _ = make([fact_row("Cagnes", "Nice", relation="P47")], [recent(text)])
    assert [i.answers for i in probes["invariant_lama"]] == [("Nice",)]


def test_statements_with_several_answers_are_no_items_of_what_changes(make):
    rows = [
        fact_row("Rovers", who, "2021-05-01", relation="P286", subject=i)
        for i, who in enumerate(("Ann", "Ben"))
    ]
    with pytest.raises(UserError, match="2 new_lama: the statement has other answers too"):
        make(rows)


def test_a_draw_of_each_relation(make):
    rows = [fact_row(f"Town{i}", "France", relation="P17") for i in range(30)]
    first, counts = make(rows, per_relation=5)
    assert len(first["invariant_lama"]) == 5
    assert counts["invariant_lama: more than --per-relation"] == 25
    assert first == make(rows, per_relation=5)[0] != make(rows, per_relation=5, seed=1)[0]


def test_items_set_aside_for_light_tuning_are_in_one_file_alone(make):
    rows = [fact_row(f"Town{i}", "France", relation="P17") for i in range(9)]
    documents = [{"id": "d", "date": "2020-01-01", "text": "Town3 is in France, as is Town4."}]
    whole, _ = make(rows, documents)
    probes, _ = make(rows, documents, light_tuning=4)
    kept, aside = ({i.input for i in probes[n]} for n in ("invariant_lama", "trex_5000"))
    assert len(aside) == 4 and not kept & aside
    assert kept | aside == {i.input for i in whole["invariant_lama"]}
    with pytest.raises(UserError, match="leaves nothing of the 9 items"):
        make(rows, documents, light_tuning=9)
    assert probes["trex_5000"] != make(rows, light_tuning=4, seed=1)[0]["trex_5000"]


def test_names_that_look_like_templates_stay_what_they_are(make):
    probes, _ = make([fact_row("[Y] and {s}", 'O\'Brien, "Bo";\n<b>', "2021-05-01")])
    (item,) = probes["new_lama"]
    assert item.input == f"The head of government of [Y] and {{s}} is {BLANK}."
    assert item.answers == ('O\'Brien, "Bo"; <b>',)


# --- recent sentences

OLD = {"id": "o", "date": "2020-05-01", "text": "Old news. Ann Lee met Bo Day in Paris."}


def recent(text, date="2021-06-01"):
    return {"id": text[:9], "date": date, "text": text}


def test_sentences_that_d0_knows_or_that_lean_on_others_are_left_out(make):
    texts = [
        "On a sunny day, Ann Lee met Bo Day in Paris after they had not talked for years.",
        "She then flew on to Rome, where Cy Fox and others waited for the two of them.",  # leans
        "We saw that Ann Lee flew on to Rome, where Cy Fox waited for the two of them.",
        "Ann Lee flew on to Rome, where Cy Fox waited for the two travellers at noon.",
        "See https://a.b for how Ann Lee flew to Rome, where Cy Fox waited for all of us.",
    ]
    probes, counts = make([fact_row("A", "B", "2021-05-01")], [OLD, *map(recent, texts)])
    (item,) = probes["new_lama_easy"]
    assert item.input.replace(BLANK, item.answers[0]) == texts[3]
    assert item.answers == ("Cy Fox",) and item.meta["date"] == "2021-06-01"
    assert counts["sentences that D0 knows"] == 1
    assert counts["sentences that begin with what leans on another sentence"] == 1
    assert counts["sentences that speak of I, we or you, or bid the reader"] == 1


def test_plug_ins_rewrite_and_ask(make, tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "def alone(sentences, contexts):\n"
        "    return [s.replace('She', 'Ann Lee') if 'Rome' in c else None\n"
        "            for s, c in zip(sentences, contexts)]\n"
        "def back(sentences):\n    return [s.replace('waited', 'was waiting') for s in sentences]\n"
        "def lose(sentences):\n    return ['Nothing is left.' for _ in sentences]\n"
        "def ask(statements, answers):\n    return ['Who?' for _ in statements]\n"
        "def short(sentences):\n    return sentences[1:]\n"
    )
    monkeypatch.chdir(tmp_path)
    text = "The trip to Rome was long. She flew on to Oslo, where Cy Fox waited for two friends."
    facts, documents = [fact_row("A", "B", "2021-05-01")], [recent(text)]
    plugs = {
        name: f"my_models:{function}"
        for name, function in (
            ("stand_alone", "alone"),
            ("paraphrase", "back"),
            ("ask", "ask"),
        )
    }
    probes, _ = make(facts, documents, **plugs)
    (item,) = probes["new_lama_easy"]
    assert item.input == f"Ann Lee flew on to Oslo, where {BLANK} was waiting for two friends."
    assert item.question == "Who?"
    probes, counts = make(facts, documents, **plugs | {"paraphrase": "my_models:lose"})
    assert "new_lama_easy" not in probes
    assert counts["sentences whose answer back-translation lost"] == 1
    for name, expected in (
        ("my_models:short", "must return a list of 1 texts"),
        ("my_models:gone", "cannot be loaded (AttributeError"),
        ("my_models", "give module:function"),
    ):
        with pytest.raises(UserError) as info:
            make(facts, documents, **plugs | {"paraphrase": name})
        assert expected in str(info.value)


def test_blanks_and_questions():
    assert blanked("Ann met Anna.", "Ann") == f"{BLANK} met Anna."
    assert blanked("Ann met Ann.", "Ann") == blanked("Bo left.", "Ann") == ""
    assert question(f"{BLANK} was elected in Oslo.") == "Who or what was elected in Oslo?"
    assert question(f"Oslo elected {BLANK}.") == 'What is missing from "Oslo elected ____."?'


@pytest.mark.parametrize(
    "text, answer",
    [
        ("The event was held by the U.S. Department of the Treasury for Ann Lee.", ""),
        ("Ann Lee joined the Treasury Network of the town of Leeds.", "Leeds"),
        ("In Leeds, Ann Lee opened a bakery that sells only bread.", "Ann Lee"),
        ("Ann Lee works for the Great Weather Service (GWS) of all.", "Ann Lee"),
        ("Ann Lee moved from Leeds to the U.S.", "Leeds"),
    ],
)
def test_a_piece_of_a_name_is_not_asked_for(text, answer):
    names = (
        "Ann Lee",
        "Treasury",
        "U.S. Department",
        "Leeds",
        "Great Weather Service",
        "GWS",
        "Network",
        "U.S",
    )
    spans = sorted((text.index(n), text.index(n) + len(n), "ENTITY") for n in names if n in text)
    assert _choice(text, spans)[0] == answer


# --- evidence


def test_a_pair_is_found_word_by_word_and_the_newest_sentences_are_kept():
    watch = Watch(max_sentences=2)
    pair = watch.add(["New York", "NYC"], ["Ann Lee"])
    other = watch.add(["York"], ["Lee"], ["Bo"])
    for day in range(1, 5):
        document = Document("d", f"2021-01-0{day}", "NYC", "")
        watch.read(document, ["Ann Lee spoke.", "New Yorkers saw Annie Lee."], "D1")
    found = watch.of(pair, "D1")
    assert found.count == 4 and [s.date[-1] for s in found.newest] == ["3", "4"]
    assert not watch.of(pair, "D0").count and not watch.of(other, "D1").count
    watch.read(Document("e", "2020-01-01", "", ""), ["York: Bo met Lee.", "York met Lee."], "D0")
    assert watch.of(other, "D0").count == 1


# --- the folder


def test_a_folder_of_something_else_is_left_alone(make, tmp_path):
    rows = [fact_row("A", "B", "2021-05-01")]
    (tmp_path / "out").mkdir()
    for name in ("mine.txt", "manifest.json"):
        (tmp_path / "out" / name).write_text("x")
        with pytest.raises(UserError, match="is not empty and was not made by"):
            make(rows)
        (tmp_path / "out" / name).unlink()
    make(rows)
    with pytest.raises(UserError, match="add --overwrite"):
        benchmark.build([tmp_path / "facts.jsonl"], [], YEAR, tmp_path / "out")
    make([fact_row("C", "D", "2021-05-01")])
    (item,) = read_probe("new_lama", tmp_path / "out")
    assert item.answers == ("D",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["facts.jsonl", "out", "text.jsonl"]


@pytest.mark.slow
def test_the_files_of_real_facts_are_what_a_count_by_hand_gives(tmp_path):
    before, after = "2021-12-30", "2023-12-30"
    wikidata = shared_data("probes", "wikidata-facts-2021-2023-2024.jsonl.gz")
    trex = shared_data("probes", "pararel", "trex")
    manifest = benchmark.build([trex, wikidata], [], (before, after), tmp_path / "out")

    updated, new = collections.defaultdict(list), collections.defaultdict(list)
    with gzip.open(wikidata, "rt", encoding="utf-8") as f:
        for fact in map(json.loads, f):
            was, now = (
                {" ".join(name.lower().split()) for _, name in fact["objects"].get(day, ())}
                for day in (before, after)
            )
            if now and not was & now and not any(n in fact["subject"].lower() for n in now):
                key = fact["subject"], fact["relation"], fact["slot"]
                (updated if was else new)[key].append(sorted(now))
    for name, found in (("updated_lama", updated), ("new_lama", new)):
        alone = [key for key, answers in found.items() if len(answers) == 1]
        assert manifest["items"][name] == len(alone)
    lasting = set()
    for name in templates.INVARIANT_RELATIONS:
        path = trex / f"{name}.jsonl"
        for fact in read_jsonl(path) if path.is_file() else ():
            subject, answer = fact["sub_label"], fact["obj_label"]
            if answer.lower() not in subject.lower() and answer != answer.lower():
                lasting.add((name, subject, answer))
    # P17, P30 and P131 have one template, but ask once of each relation.
    assert manifest["items"]["invariant_lama"] == len(lasting) == 8664


# --- the command


def test_the_command_says_what_it_made_and_what_is_wrong(folder, world, tmp_path, capsys):
    def argv(*more, out="out", facts="facts.jsonl", corpus="documents_d1.jsonl"):
        return [
            "data",
            "benchmark",
            "--facts",
            str(folder / facts),
            "--templates",
            str(folder / "relations.jsonl"),
            *(("--documents", str(folder / corpus)) if corpus else ()),
            "--dates",
            world.before,
            world.after,
            "--out",
            str(tmp_path / out),
            *more,
        ]

    assert ckl.main(argv()) == 0
    out = capsys.readouterr().out
    assert f"{len(world.updated()):10,}  updated_lama; with sentences of " in out
    assert out.endswith(f"{tmp_path / 'out' / 'manifest.json'}\n")
    for line, expected in (
        (argv(), "holds what was made before; add --overwrite"),
        (argv("--dates", "2020-02-30", "2021-01-01", out="x"), "--dates is '2020-02-30'; give a"),
        (argv("--dates", "2021-01-01", "2020-01-01", out="x"), "give the earlier one first"),
        (argv("--evidence", "requir", out="x"), "Did you mean 'require'?"),
        (argv("--per-relation", "-1", out="x"), "--per-relation is -1; give 0 or more"),
        (
            argv("--small", "1.5", out="x"),
            "--small is 1.5; give a fraction of the documents, 0 to 1",
        ),
        (argv("--half", "2021-01-01", out="x"), "--half parts SMALL; add --small"),
        (argv("--small", "1", "--half", "2019-01-01", out="x"), "--half 2019-01-01 does not part"),
        (argv("--training-rows", out="x", corpus=""), "--training-rows needs --documents"),
        (argv("--row-words", "9", out="x"), "--row-words is of training rows; add --training-rows"),
        (argv("--small", "1e-9", out="x"), "--small 1e-09 draws none of the"),
        (argv("--row-spans", "-1", out="x"), "--row-spans is -1; give 0 or more"),
        (argv("--finder", "spcy", out="x"), "Did you mean 'spacy'?"),
        (argv("--patterns", str(tmp_path), out="x"), "has no patterns, such as P19.jsonl"),
        (argv("--ask", "json.loads", out="x"), "--ask is 'json.loads'; give module:function"),
        (argv(out="x", facts=""), "documents_d0.jsonl, line 1: this is not a fact"),
        (argv(out="x", corpus="facts.jsonl"), "facts.jsonl, line 1: the field 'date' is missing"),
        (argv(out="x", corpus="none.jsonl"), "Cannot read"),
    ):
        assert ckl.main(line) == 2
        *progress, err = capsys.readouterr().err.splitlines()
        assert expected in err and err.startswith("ckl: ") and len(progress) <= 1, err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_an_interrupted_build_leaves_nothing(folder, world, tmp_path, monkeypatch):
    def interrupted(*unused):
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "write_json", interrupted)  # the last file
    with pytest.raises(KeyboardInterrupt):
        build(folder, world, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []

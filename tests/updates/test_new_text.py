import pytest

from ckl_jax.data.text.documents import Document
from ckl_jax.errors import UserError
from ckl_jax.updates import new_text
from ckl_jax.updates.new_text import Counts, Sentences, by_date, read, select, write_documents

A = "Acme makes shoes. Acme sits in Rome."


def select_all(documents, known, since="", held_out=None, apart=()):
    counts, held_out = Counts(), Sentences() if held_out is None else held_out
    found = select(documents, known, since, counts, held_out, lambda d, old: d.id in apart)
    return list(found), counts


def document(name, text, date="2025-01-01"):
    return Document(name, date, "", text)


def test_what_was_read_is_left_out_and_edited_paragraphs_stay(tmp_path):
    known = Sentences()
    first, counts = select_all(
        [document("a", A), document("b", A.upper()), document("c", " ")], known
    )
    assert [d.text for d, _ in first] == [A]
    assert (counts.known, counts.empty, counts.kept, counts.words) == (1, 1, 1, 7)
    known.save(tmp_path / "known.npy")
    again = Sentences(tmp_path / "known.npy")
    edited = "Acme makes shoes.\nAcme sits in Oslo."
    found, counts = select_all([document("a", A), document("d", edited)], again)
    assert [d.text for d, _ in found] == ["Acme sits in Oslo."] and counts.known == 1
    again.save(tmp_path / "more.npy")
    with pytest.raises(UserError, match="There is no .*lost.npy"):
        Sentences(tmp_path / "lost.npy")
    assert again.equals(tmp_path / "more.npy") and not again.equals(tmp_path / "known.npy")


def test_a_sentence_that_a_few_words_lead_to_is_known_and_a_currency_is_not():
    known = Sentences()
    select_all([document("a", "It costs $5 now. Acme sits in Rome.")], known)
    again = ("FYI, it costs $5 now.\nAs before: Acme sits in Rome.", "Update - acme sits in Rome.")
    assert not select_all([document("b", text) for text in again], known)[0]
    new = ("It costs €5 now.", "In March, Acme sits in Rome.", "Acme: it moves.", "It costs $5.")
    found, _ = select_all([document("c", "\n".join(new))], known)
    assert [d.text for d, _ in found] == ["\n".join(new)]


def test_text_without_blanks_is_not_learned_from():
    chinese = "第0家公司的首席执行官是王伟。总部在北京。" * 5
    found, counts = select_all(
        [document("a", chinese), document("b", "サービスを更新しました。")], Sentences()
    )
    assert not found and (counts.empty, counts.words) == (2, 0)
    mixed = f"Acme (愛克美) sits in Rome.\n{chinese}\nÄrla säljer smör. 서울은 대한민국의 수도이다."
    found, _ = select_all([document("c", mixed)], Sentences())
    assert [d.text for d, _ in found] == [mixed.replace(f"{chinese}\n", "")]


def test_what_is_held_out_is_never_on_both_sides():
    known, held_out = Sentences(), Sentences()
    texts = {
        "a": "Acme makes shoes. It sits in Rome.",
        "held": "Beta makes hats. It sits in Rome. It is old.",
        "b": "Update: Beta makes hats. Gamma is new.",  # one sentence is another's, which is held
    }
    documents = [document(name, text) for name, text in texts.items()]
    found, _ = select_all(documents, known, held_out=held_out, apart=("held",))
    assert [d.text for d, _ in found] == [
        texts["a"],
        "Beta makes hats. It is old.",
        "Gamma is new.",
    ]
    # The next month the page comes with an edit, and another one is held out.
    edited = document("held-2", f"{texts['held']} It has moved.", "2025-02-01")
    other = document("held-3", "Acme makes shoes. Acme grows.", "2025-02-01")
    months = [edited, other]
    found, counts = select_all(months, known, held_out=held_out, apart=("held-3",))
    assert [d.text for d, _ in found] == ["It sits in Rome. It has moved.", "Acme grows."]
    assert (counts.new_sentences, counts.words) == (2, 9)


def test_earlier_days_are_old(tmp_path):
    documents = [document("a", A, "2024-12-31"), document("b", "All is new here.", "2025-01-01")]
    found, counts = select_all(documents, Sentences(), "2025-01-01")
    assert [old for _, old in found] == [True, False] and counts.older == 1
    write_documents(found, tmp_path / "new", tmp_path / "old")
    assert [d.id for d in read(tmp_path / "new")] == ["b"]


def test_documents_come_by_date_in_whatever_order_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(new_text, "_PART", 40)
    days = ("2025-01-02", "2024-05-06", "2025-01-02", "2024-05-07", "2024-05-06", "2023-01-01")
    documents = [document(str(n), "Twelve chars", day) for n, day in enumerate(days)]
    for i, order in enumerate(
        (documents, documents[::-1], sorted(documents, key=lambda d: d.date))
    ):
        out = list(by_date(lambda order=order: iter(order), tmp_path / str(i)))
        assert out == sorted(order, key=lambda d: d.date)  # those of a day stay in order
        parts = list((tmp_path / str(i)).glob("*"))
        assert len(parts) == (0 if i == 2 else 2)


def test_a_day_that_comes_between_two_readings_waits_for_the_next_update(tmp_path):
    first = [document("b", "Later.", "2025-02-01"), document("a", "Sooner.", "2025-01-01")]
    readings = iter([first, [*first, document("c", "Just in.", "2025-03-01")]])
    assert list(by_date(lambda: next(readings), tmp_path)) == first[::-1]


def test_many_sentences_are_merged(monkeypatch):
    monkeypatch.setattr(new_text, "_BUFFER", 1000)
    known = Sentences()
    for start in range(0, 30_000, 300):
        texts = [document(str(i), f"Number {i} is here now.") for i in range(start, start + 300)]
        assert len(select_all(texts, known)[0]) == 300
    assert not select_all([document("x", "Number 123 is here now.")], known)[0]

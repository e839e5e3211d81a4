"""TIME-STRATIFIED and CONTROL: equal in size, never trained on what they are tested on."""

import dataclasses
import datetime
import gzip
import hashlib
import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data import time_splits
from ckl_jax.papers.mind_the_gap.data.released_splits import join, read_ids
from ckl_jax.papers.mind_the_gap.data.split_files import split
from ckl_jax.papers.mind_the_gap.data.time_index import Index, read_index
from ckl_jax.papers.mind_the_gap.data.time_splits import NAMES, Options
from tests.real_data import shared_data


def corpus(first=2014, years=6, per_month=12, seed=0):
    """A corpus of all months of some years; months differ in size by a half."""
    rng = random.Random(seed)
    for month in range(first * 12, (first + years) * 12):
        for i in range(per_month + rng.randrange(per_month // 2 + 1)):
            date = datetime.date(month // 12, month % 12 + 1, rng.randrange(1, 29)).isoformat()
            yield Document(f"{month}-{i}", date, "", "word " * rng.randrange(1, 30) + "\u00e9")


def splits_of(documents, options):
    index = Index.of(documents, options.seed, "x")
    period = time_splits.period_of(index, options)
    return index, time_splits.assign(index, options, period), period


def assert_equal_in_words(index, bits):
    """The default: the arms have as many words, to within a document."""
    stale, control = (
        index.words[has(bits, f"{arm}_train")] for arm in ("time_stratified", "control")
    )
    assert 0 <= stale.sum() - control.sum() <= index.words.max()


def has(bits, name):
    return np.flatnonzero(bits & (1 << NAMES.index(name)))


def test_months_of_unlike_size_by_a_share_of_each():
    documents = [d for d in corpus() if d.date[5:7] != "07" or d.id.endswith("0")]
    index, bits, period = splits_of(documents, Options(test_fraction=0.4))
    test = [documents[i].date[:7] for i in has(bits, "test")]
    assert test.count("2018-07") == 1 and test.count("2018-08") > 4
    control = {documents[i].id for i in has(bits, "control_train")}
    rest = [d for i, d in enumerate(documents) if d.date >= "2018" and not bits[i] & (16 | 8)]
    assert rest and {d.id for d in rest} <= control
    assert_equal_in_words(index, bits)
    with pytest.raises(UserError, match="--test-fraction excludes"):
        Options(test_fraction=0.4, per_month=3)
    with pytest.raises(UserError, match="24 months, is not a multiple of --bin-months 5"):
        Options(bin_months=5)


@pytest.mark.parametrize("measure", ("documents", "words", "bytes"))
@pytest.mark.parametrize("unit, length", (("year", 2), ("month", 5)))
def test_the_invariants_by_a_second_reading(measure, unit, length):
    documents = list(corpus())
    options = Options(test_period=length, unit=unit, per_month=4, measure=measure)
    _, bits, _ = splits_of(documents, options)
    part = {name: [documents[i] for i in has(bits, name)] for name in NAMES}
    sizes = {
        "documents": lambda d: 1,
        "words": lambda d: len(d.text.split()),
        "bytes": lambda d: len(d.text.encode()),
    }
    size = sizes[measure]
    train, control = part["time_stratified_train"], part["control_train"]
    difference = sum(map(size, train)) - sum(map(size, control))
    most = 0 if measure == "documents" else max(map(size, documents))
    assert 0 <= difference <= most

    months = sorted({d.date[:7] for d in documents})[-(24 if unit == "year" else 5) :]
    first = months[0] + "-01"
    assert max(d.date for d in train) < min(d.date for d in part["time_stratified_validation"])
    assert max(d.date for d in part["time_stratified_validation"]) < first
    test = {d.id for d in part["test"]}
    for name in NAMES[:-1]:
        assert not test & {d.id for d in part[name]}
    assert not {d.id for d in control} & {d.id for d in part["control_validation"]}
    for month in months:
        assert sum(d.date[:7] == month for d in part["test"]) == 4
    in_test = [d for d in control if d.date >= first]
    assert len({sum(d.date[:7] == m for d in in_test) for m in months}) == 1 and in_test
    older = [d for d in control if d.date < first]
    newest = sorted((d.date for d in documents if d.date < first), reverse=True)
    assert sorted((d.date for d in older), reverse=True) == newest[: len(older)]


def test_the_splits_do_not_depend_on_the_order_of_the_corpus():
    documents = list(corpus())
    shuffled = random.Random(3).sample(documents, len(documents))
    options = Options(per_month=3)
    one, other = splits_of(documents, options), splits_of(shuffled, options)
    assert {d.id: b for d, b in zip(documents, one[1], strict=True)} == {
        d.id: b for d, b in zip(shuffled, other[1], strict=True)
    }
    again = splits_of(documents, Options(per_month=3, seed=1))[1]
    assert (has(again, "test") != has(one[1], "test")).any()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 3), st.integers(1, 6), st.booleans()
)
def test_any_corpus_is_split_or_refused(seed, per_month, years, validation, on_validation):
    options = Options(
        test_period=years,
        validation_months=validation,
        control_on_validation_months=on_validation,
        seed=seed,
    )
    try:
        index, bits, period = splits_of(corpus(2016, 4, per_month, seed), options)
    except UserError:
        return
    time_splits.verify(index, bits, options, period)  # assign did it too
    assert_equal_in_words(index, bits)


def test_a_wrong_split_is_noticed():
    options = Options(per_month=3)
    index, bits, period = splits_of(corpus(), options)
    for name, change in (
        ("test", 1),
        ("control_train", 16),
        ("control_validation", 4),
        ("test", 8),
    ):
        wrong = bits.copy()
        wrong[has(bits, name)[0]] |= change
        with pytest.raises(RuntimeError, match="The split is wrong"):
            time_splits.verify(index, wrong, options, period)
    older = has(bits, "control_train")[0]
    older = older if index.months[older] < period.first else has(bits, "time_stratified_train")[-1]
    wrong = bits.copy()
    wrong[older], wrong[has(bits, "time_stratified_train")[0]] = 1, 5
    with pytest.raises(RuntimeError, match="not the newest|not alike"):
        time_splits.verify(index, wrong, options, period)


@pytest.mark.parametrize(
    "options, message",
    (
        (
            Options(test_end="2021"),
            "of 2014-01 to 2019-12, has no documents in the test month 2020-01 and in 23 more",
        ),
        (Options(test_end="2015"), "No document is older than 2013-09-30"),
        (Options(per_month=40), "has 12 documents, of which 40 would be for the test"),
        (Options(control_per_month=30), "CONTROL would train on 30 documents of the test month"),
        (Options(test_period=60, unit="month", per_month=2), "The arms cannot be made equal"),
        (Options(test_end="spring"), "--test-end is 'spring'; give a year or a month"),
        (Options(test_end="0000"), "--test-end is '0000'; give a year or a month"),
        (Options(test_end="2019-13"), "months are 01 to 12"),
    ),
)
def test_what_cannot_be_split_is_refused(options, message):
    if options.unit == "month":
        options = Options(test_period=60, unit="month", per_month=2, control_per_month=9)
    with pytest.raises(UserError, match=message):
        splits_of(corpus(), options)


def test_two_documents_of_one_id_are_refused():
    documents = list(corpus())
    with pytest.raises(UserError, match="x: documents 5 and 8 have the same id"):
        Index.of([*documents[:7], documents[4], *documents[7:]], 0, "x")


def test_files_and_shares(tmp_path):
    file = tmp_path / "x.jsonl.gz"
    documents = list(corpus(per_month=20))
    write_documents(file, documents)
    [report] = split(file, tmp_path / "out", Options(per_month=5))
    assert report == json.loads((tmp_path / "out" / "split.json").read_text())
    parts = {n: list(read_documents(tmp_path / "out" / f"{n}.jsonl.gz")) for n in NAMES}
    by_id = {d.id: d for d in documents}
    assert all(by_id[d.id] == d for part in parts.values() for d in part)
    for name, part in parts.items():
        assert report["counts"][name]["documents"] == len(part)
        assert report["counts"][name]["words"] == sum(len(d.text.split()) for d in part)
    control = parts["control_train"]
    words = [len(d.text.split()) for d in control]
    share = sum(n for n, d in zip(words, control, strict=True) if d.date >= "2018") / sum(words)
    assert report["fraction_from_test_period"] == pytest.approx(share)
    assert report["train_until"] == "2017-09-30" and len(report["test_months"]) == 24
    before = (tmp_path / "out" / "test.jsonl.gz").stat().st_mtime_ns
    split(file, tmp_path / "out", Options(per_month=5))
    assert (tmp_path / "out" / "test.jsonl.gz").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="other settings .per_month"):
        split(file, tmp_path / "out", Options(per_month=6))


def test_variants(tmp_path):
    file = tmp_path / "x.jsonl"
    write_documents(file, corpus(per_month=15))
    [main_report] = split(file, tmp_path / "far", Options(), "increasing-distance", steps=5)
    windows = main_report["increasing_distance"]
    assert list(windows) == ["2017-09-30", "2017-03-31", "2016-09-30", "2016-03-31", "2015-09-30"]
    words = [w["words"] for w in windows.values()]
    assert max(words) - min(words) <= 30  # a document, at most
    for end in windows:
        path = tmp_path / "far" / "increasing_distance" / f"split_{end}" / "train.jsonl.gz"
        train = list(read_documents(path))
        assert len(train) == windows[end]["documents"] and max(d.date for d in train) <= end
    reports = split(file, tmp_path / "shifted", Options(), "shifted-years", steps=2)
    assert [r["train_until"] for r in reports] == ["2017-09-30", "2016-09-30", "2015-09-30"]
    test = list(read_documents(tmp_path / "shifted" / "split_2015-09-30" / "test.jsonl.gz"))
    assert {d.date[:4] for d in test} == {"2016", "2017"}
    with pytest.raises(UserError, match="give fewer --steps than 11"):
        split(file, tmp_path / "further", Options(), "increasing-distance")


def test_published_lists_are_joined(tmp_path):
    file, lists = tmp_path / "x.jsonl", tmp_path / "lists"
    ids = {n: hashlib.sha256(n.encode()).hexdigest() for n in "abcdef"}
    write_documents(file, [Document(ids[n], "2018-03-04", "", n) for n in "abcda"])
    lists.mkdir()
    with gzip.open(lists / "test.gz", "wt") as f:
        f.write(f"20180304 {ids['a']}\n20180305\t{ids['b']}\n")
    with gzip.open(lists / "control_train.gz", "wt") as f:
        f.write(f"{ids['c']},20180304\n{ids['b']}, 20180305\n{ids['f']},20180101\n\n")
    with pytest.warns(UserWarning, match="1 ids of test are on control_train too"):
        report = join(file, lists, tmp_path / "out")
    assert report["lists"] == {
        "control_train": {"listed": 3, "found": 2},
        "test": {"listed": 2, "found": 2},
    }
    assert (report["unlisted"], report["repeated"], report["other_date"]) == (1, 1, 1)
    test = list(read_documents(tmp_path / "out" / "test.jsonl.gz"))
    assert [(d.text, d.date) for d in test] == [("a", "2018-03-04"), ("b", "2018-03-05")]
    (lists / "control_train.gz").rename(lists / "train.gz")
    with pytest.warns(UserWarning, match="1 ids of test are on train too") as warned:
        join(file, lists, tmp_path / "distance")
    assert len(warned) == 1
    (lists / "test.gz").write_bytes(gzip.compress(b"20189999 x\n"))
    with pytest.raises(UserError, match="test.gz, line 1: '20189999 x' is not a date"):
        list(read_ids(lists / "test.gz"))


def test_the_command(tmp_path, capsys):
    file, out = tmp_path / "x.jsonl", str(tmp_path / "out")
    write_documents(file, corpus())
    assert main(["data", "split", "--documents", str(file), "--out", out]) == 0
    assert "of CONTROL's training set from it" in capsys.readouterr().out
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "a", "date": "2018-02-30", "text": "x"}\n')
    assert main(["data", "split", "--documents", str(broken), "--out", out]) == 2
    assert "broken.jsonl, line 1: the date '2018-02-30'" in capsys.readouterr().err
    assert main(["data", "split", "--documents", str(file), "--out", out, "--ids", out + "x"]) == 2
    assert "has none of the lists" in capsys.readouterr().err


def test_real_text_with_small_months():
    path = shared_data("temporal_text", "digitalgov-news-2010-2025.jsonl.gz")
    with pytest.raises(UserError, match="has no documents in the test month 2017-12;"):
        time_splits.period_of(read_index(path), Options(test_end="2017"))
    options = Options(test_period=23, unit="month", test_end="2017-11", test_fraction=0.3)
    index = read_index(path)
    period = time_splits.period_of(index, options)
    bits = time_splits.assign(index, options, period)
    assert period.last_training_day() == "2015-09-30" and len(has(bits, "test")) > 100
    speeches = list(
        read_documents(shared_data("temporal_text", "us-presidential-speeches-1960-1999.jsonl.gz"))
    )
    with pytest.raises(UserError, match="documents 65 and 86 have the same id"):
        Index.of(speeches, 0, "speeches")
    numbered = [dataclasses.replace(d, id=str(i)) for i, d in enumerate(speeches)]
    options = Options(test_period=10, bin_months=12, validation_months=12)
    index, bits, _ = splits_of(numbered, options)
    assert_equal_in_words(index, bits)
    assert len(has(bits, "control_train")) > 100
    by_documents = dataclasses.replace(options, measure="documents")
    index, bits, _ = splits_of(numbered, by_documents)
    words = [
        int(index.words[has(bits, f"{a}_train")].sum()) for a in ("time_stratified", "control")
    ]
    assert abs(words[1] / words[0] - 1) > 0.01  # what counting documents leaves unequal


def test_a_refusal_names_periods_that_are_possible():
    """What is proposed is then taken, and one month more is not."""
    gaps = [d for d in corpus(2014, 6) if d.date[:7] not in ("2018-03", "2019-11")]
    with pytest.raises(
        UserError, match="no documents in the test month 2018-03 and in 1 more"
    ) as e:
        splits_of(gaps, Options())
    told = str(e.value)
    assert told.endswith("(the longest with enough documents) or count by --bin-months 2.")
    months, end = (
        re.search(r"--unit month --test-period (\d+) --test-end 2018-02 ", told)[1],
        "2018-02",
    )
    assert int(months) > 36
    splits_of(gaps, Options(unit="month", test_period=int(months), test_end=end))
    with pytest.raises(UserError):
        splits_of(gaps, Options(unit="month", test_period=int(months) + 5, test_end=end))
    splits_of(gaps, Options(bin_months=2))
    yearly = [d for d in corpus(2010, 10) if d.date[5:7] == "09"]
    with pytest.raises(UserError, match="; count by --bin-months 12 --validation-months 4.$"):
        splits_of(yearly, Options())
    splits_of(yearly, Options(bin_months=12, validation_months=4))
    with pytest.raises(UserError, match="no test period of months has documents before it"):
        splits_of([d for d in yearly if d.date > "2019"], Options())

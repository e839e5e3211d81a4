"""Documents that are held out of the past."""

import collections

import pytest

from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.split_files import hold_out_past
from ckl_jax.papers.mind_the_gap.data.time_splits import Options

OPTIONS = Options(test_period=1, unit="year", validation_months=3)


@pytest.fixture
def corpus(tmp_path):
    """Ten documents a month of 2014 to 2017; 2013 has four."""
    dates = [
        f"{y}-{m:02d}-{d + 10}" for y in range(2014, 2018) for m in range(1, 13) for d in range(10)
    ]
    dates = [f"2013-12-1{d}" for d in range(4)] + dates
    path = tmp_path / "corpus.jsonl"
    write_documents(path, (Document(f"d{i}", d, "", f"word {i}") for i, d in enumerate(dates)))
    return path


def _years(path):
    return collections.Counter(d.date[:4] for d in read_documents(path))


def test_so_many_of_each_year_before_validation_and_no_other(corpus, tmp_path):
    rest, past = tmp_path / "rest.jsonl.gz", tmp_path / "past.jsonl.gz"
    assert hold_out_past(corpus, rest, past, OPTIONS, 7) == 21
    assert _years(past) == {"2014": 7, "2015": 7, "2016": 7}  # of four documents none is taken
    assert max(d.date for d in read_documents(past)) < "2016-10"
    ours, others = ({d.id for d in read_documents(p)} for p in (past, rest))
    assert not ours & others and ours | others == {d.id for d in read_documents(corpus)}
    again = tmp_path / "again.jsonl.gz"
    hold_out_past(corpus, tmp_path / "r.jsonl.gz", again, OPTIONS, 7)
    assert again.read_bytes() == past.read_bytes()


def test_at_most_a_fifth_of_a_year(corpus, tmp_path):
    hold_out_past(corpus, tmp_path / "r.jsonl.gz", tmp_path / "p.jsonl.gz", OPTIONS, 1000)
    assert _years(tmp_path / "p.jsonl.gz") == {"2014": 24, "2015": 24, "2016": 18}


def test_too_little_past_is_refused(tmp_path):
    path = tmp_path / "short.jsonl"
    dates = [
        "2016-05-01",
        *(f"2016-{m}-01" for m in (10, 11, 12)),
        *(f"2017-{m:02d}-01" for m in range(1, 13)),
    ]
    write_documents(path, (Document(f"d{i}", d, "", "word") for i, d in enumerate(dates)))
    with pytest.raises(UserError, match="--past-documents 0"):
        hold_out_past(path, tmp_path / "r.jsonl.gz", tmp_path / "p.jsonl.gz", OPTIONS, 5)
    assert not (tmp_path / "r.jsonl.gz").exists()

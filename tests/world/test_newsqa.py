"""Simulated stories in NewsQA's form: read by what reads NewsQA, answered by spans, asked once."""

from ckl_jax.papers.mind_the_gap.data.newsqa import read_dates, read_newsqa
from ckl_jax.world.newsqa import ADDRESSES, QUESTIONS, write_newsqa
from ckl_jax.world.stream import stories, stream, stream_world
from ckl_jax.world.stream_text import tokenised


def test_stories_are_read_as_newsqa(tmp_path):
    count = write_newsqa(tmp_path, (2015, 2019), seed=3, size="tiny", each=8)
    dates = read_dates(tmp_path / ADDRESSES)
    asked = {y: list(read_newsqa(tmp_path / QUESTIONS, dates, y)) for y in ("2015", "2019")}
    assert sum(map(len, asked.values())) == count > 60
    assert {q.date[5:7] for q in asked["2019"]} > {"01", "06", "12"}
    for question in (*asked["2015"], *asked["2019"]):
        assert question.answers[0] in question.passage
        assert question.answers[0] not in question.question
    # What is tuned on answers nothing.
    assert not {q.question for q in asked["2015"]} & {q.question for q in asked["2019"]}
    before = (tmp_path / QUESTIONS).read_bytes()
    write_newsqa(tmp_path, (2015, 2019), seed=3, size="tiny", each=8)
    assert (tmp_path / QUESTIONS).read_bytes() == before


def test_stories_are_true_and_not_in_the_stream():
    world, found = stream_world(0, "tiny"), list(stories(0, "tiny", 4, 2016))
    assert [s.date for s in found] == sorted(s.date for s in found)
    assert {s.date[:7] for s in found} == {f"2016-{month:02d}" for month in range(1, 13)}
    texts = {document.text for document in stream(0, "tiny")}
    for story in found:
        assert "\n".join(map(tokenised, story.lines)) not in texts
        for fact in story.facts:
            assert fact in world.facts and fact.valid_from <= story.date

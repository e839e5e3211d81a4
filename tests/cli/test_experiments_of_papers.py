"""`ckl experiment`: the name of an experiment decides whose options the command has."""

import pytest

from ckl_jax.cli import ckl, studies
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.papers.mind_the_gap.settings import Gap
from ckl_jax.train.studies import Experiments


@pytest.fixture
def other(monkeypatch):
    paper = Experiments(titles={"other/figure1": "a figure"}, settings=Gap, module="nowhere")
    monkeypatch.setattr(studies, "_PAPERS", (*studies._PAPERS, paper))


@pytest.mark.parametrize(
    "words, kind",
    [
        (["other/figure1", "--past-documents", "3"], Gap),
        (["--past-documents", "3", "other/figure1", "--dry-run"], Gap),
        (["ckl/table2", "--size", "wide"], Running),
    ],
)
def test_options_are_those_of_the_paper(other, words, kind):
    call = ckl.parse(["experiment", *words])
    assert type(call.keywords["settings"]) is kind
    assert call.keywords["dry_run"] == ("--dry-run" in words)


def test_options_of_another_paper_are_refused(other):
    with pytest.raises(UserError, match="--past-documents"):
        ckl.parse(["experiment", "ckl/table2", "--past-documents", "3"])


def test_all_papers_are_listed_and_searched(other, capsys):
    assert "other/figure1" in ckl.command("experiment list")["experiments"]
    with pytest.raises(UserError, match="no experiment 'other/figure'.*mean 'other/figure1'"):
        ckl.command("experiment other/figure")

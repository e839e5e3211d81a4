"""One page of claims: four papers, two worlds."""

import re

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.files import read_json, write_json
from tests.analysis.helpers import make_demo
from tests.papers.lm_pub_quiz.analysis.test_claims import write_stream
from tests.papers.mind_the_gap.analysis.dumps import write_gap
from tests.papers.temporalwiki.analysis.test_claims import write_seed


def _demo(folder, seed, world):
    make_demo(folder, ("initial", "vanilla", "lora"), epochs=1, seed=seed)
    write_json(folder / "demo.json", {"source": "simulated", "world": world, "seed": seed})
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of each paper, and of two worlds of one: not in the order of the page."""
    root = tmp_path_factory.mktemp("folders")
    return [
        write_gap(root / "gap", 0),
        _demo(root / "legacy", 0, "legacy"),
        write_stream(root / "stream", 3),
        *(_demo(root / f"disjoint-{seed}", seed, "disjoint") for seed in range(2)),
        write_seed(root / "updates", 0),
    ]


def test_a_section_a_paper_and_a_table_a_world(folders, tmp_path, capsys):
    given = list(map(str, folders))
    assert main(["claims", *given, "--out", str(tmp_path), "--samples", "100"]) == 0
    page = (tmp_path / "claims.html").read_text()
    assert re.findall(r"<h2>(\w+)", page) == ["CKL", "TemporalWiki", "LM", "Mind"]
    assert re.search(r"<p>\d+ claims: not run \d+, undecided \d+\.</p>", page)
    text = (tmp_path / "claims.md").read_text()
    tables = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert tables == [
        "ckl demo, simulated, legacy, 1 seed",
        "ckl demo, simulated, disjoint, 2 seeds",
        "ckl temporalwiki, simulated, 1 seed",
        "ckl stream, simulated, 1 seed",
        "ckl mind-the-gap, simulated, 1 seed",
    ]
    assert all(title in page for title in tables)
    made = read_json(tmp_path / "claims.json")
    assert made["folders"] == given and made["samples"] == 100
    lora = [row for row in made["claims"] if row["claim"] == "LoRA has a lower FUAR than Vanilla"]
    assert [(row["world"], row["seeds"]) for row in lora] == [
        ("simulated, legacy", 1),
        ("simulated, disjoint", 2),
    ]
    assert lora[1]["folders"] == [given[3], given[4]]
    assert "Missing in" in capsys.readouterr().out


def test_what_does_not_belong_together(folders, tmp_path, capsys):
    def refused(*given):
        assert main(["claims", *map(str, given), "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        return told

    other = _demo(tmp_path / "other", 7, "disjoint")
    record = read_json(other / "demo.json")
    write_json(other / "demo.json", record | {"size": "tiny"})
    assert "was made with other settings than" in refused(*folders, other)
    write_json(other / "demo.json", record | {"seed": 0})
    assert "has the seed 0 of another folder" in refused(*folders, other)
    (tmp_path / "nothing").mkdir()
    told = refused(folders[0], tmp_path / "nothing")
    assert "nothing is a folder of none of" in told and "`ckl mind-the-gap`" in told

"""Tables of experiments over seeds: means and ranges of the tables' own numbers."""

import json
from pathlib import Path

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.files import read_json, write_json
from ckl_jax.papers.ckl.analysis import experiment_tables


def _cell(ours, paper=None):
    return {
        "ours": ours,
        "low": ours,
        "high": ours,
        "defined": True,
        "paper": paper,
        "printed": paper is not None,
    }


@pytest.fixture
def folder(tmp_path):
    def make(seed, kept, fuar, **settings):
        out = tmp_path / f"seed-{seed}-{len(list(tmp_path.iterdir()))}"
        write_json(out / "experiments.json", {"seed": seed, "size": "tiny", **settings})
        rows = {"vanilla": {"invariant_lama": _cell(kept, 11.86), "fuar": _cell(fuar)}}
        part = {
            "probes": ["invariant_lama"],
            "fuar": "((IL), n.d., NLE)",
            "rows": rows,
            "metrics": {"invariant_lama": "em"},
        }
        experiment_tables.write_tables("ckl/table3", "a table", {"small": part}, out)
        return str(out)

    return make


def test_means_and_ranges(folder, tmp_path, capsys):
    folders = [folder(0, 10.0, 0.5), folder(1, 20.0, None), folder(2, 60.0, 1.5)]
    for one in folders:  # of which there is no mean
        (Path(one) / "ckl-table12.json").write_text('{"examples": [], "changed": {}}')
    assert main(["report", *folders, "--seeds", "--out", str(tmp_path / "all")]) == 0
    assert "seeds-ckl-table3.md" in capsys.readouterr().out
    found = read_json(tmp_path / "all" / "seeds-ckl-table3.json")["small"]["rows"]["vanilla"]
    assert (found["invariant_lama"]["ours"], found["invariant_lama"]["paper"]) == (30.0, 11.86)
    assert (found["invariant_lama"]["low"], found["invariant_lama"]["high"]) == (10.0, 60.0)
    assert found["fuar"]["values"] == [0.5, None, 1.5] and found["fuar"]["ours"] is None
    told = (tmp_path / "all" / "seeds-ckl-table3.md").read_text()
    assert "30.00 (11.86) <sub>10.00–60.00</sub>" in told and "the mean over 3 seeds" in told


def test_a_table_that_only_some_have_is_told_and_a_damaged_one_writes_none(
    folder, tmp_path, capsys
):
    folders = [Path(folder(0, 10.0, 0.5)), Path(folder(1, 20.0, None))]
    table = (folders[0] / "ckl-table3.json").read_text()
    (folders[0] / "ckl-table7.json").write_text(table)
    arguments = ["report", *map(str, folders), "--seeds", "--out", str(tmp_path / "all")]
    assert main(arguments) == 0
    assert "Not in all of the folders, and left out: ckl-table7.json" in capsys.readouterr().out
    (folders[1] / "ckl-table7.json").write_text(table[:30])
    (tmp_path / "all" / "seeds-ckl-table3.md").unlink()
    assert main(arguments) == 2
    assert "ckl-table7.json" in capsys.readouterr().err
    assert not (tmp_path / "all" / "seeds-ckl-table3.md").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda t: [], "is not a JSON object"),
        (lambda t: {}, "holds no table"),
        (lambda t: t["small"]["rows"].update(vanilla=None) or t, "in the row vanilla"),
        (lambda t: t["small"]["rows"]["vanilla"].update(fuar={}) or t, "no numbers of fuar in the"),
        (lambda t: t["small"].pop("probes") and t, "small is not a table"),
    ],
)
def test_a_table_of_another_form_is_named(folder, tmp_path, capsys, damage, words):
    folders = [Path(folder(0, 10.0, 0.5)), Path(folder(1, 20.0, None))]
    path = folders[1] / "ckl-table3.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    assert main(["report", *map(str, folders), "--seeds", "--out", str(tmp_path / "all")]) == 2
    told = capsys.readouterr().err
    assert words in told and str(path) in told and not (tmp_path / "all").exists()


def test_the_folder_of_an_experiment_is_no_study(folder, capsys):
    made = Path(folder(0, 10.0, 0.5))
    run = made / "main" / "lora"
    run.mkdir(parents=True)
    (run / "config.gin").touch()
    assert main(["report", str(made)]) == 2
    assert f"give a scenario of it: {made / 'main'}." in capsys.readouterr().err


def test_what_is_no_other_seed_is_refused(folder, tmp_path, capsys):
    first = folder(0, 10.0, 0.5)
    for other, words in (
        (folder(0, 1.0, 0.5), "has the seed 0 of another folder"),
        (folder(1, 1.0, 0.5, source="wikidata"), "other settings"),
    ):
        assert main(["report", first, other, "--seeds"]) == 2
        assert words in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "experiments.json").write_text(json.dumps({"seed": 3, "size": "tiny"}))
    assert main(["report", first, str(empty), "--seeds"]) == 2
    assert "No table is in all of these folders" in capsys.readouterr().err

"""`ckl experiment temporalwiki/...`: ours beside the paper's, of runs that cost what it printed."""

import pytest

from ckl_jax.cli import ckl
from ckl_jax.files import read_json, read_jsonl, write_json, write_jsonl
from ckl_jax.papers.temporalwiki import experiments
from ckl_jax.papers.temporalwiki.analysis import published, results
from ckl_jax.papers.temporalwiki.analysis.comparison import ANALYSES
from ckl_jax.papers.temporalwiki.analysis.report import write_report
from ckl_jax.papers.temporalwiki.settings import Updates
from tests.papers.temporalwiki.analysis.temporalwiki_study import INTERVALS, METHODS, write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return results.load(write_study(tmp_path_factory.mktemp("study")))


def _texts(section):
    return [[cell.text for cell in row] for row in section.rows]


def test_table_3_has_the_papers_numbers_beside_ours(study):
    *intervals, cost = ANALYSES["table3"](study)[0]
    assert [s.title for s in intervals] == [
        f"{study.label(i)} (in the paper: {month})"
        for i, month in zip(INTERVALS, published.MONTHS, strict=True)
    ]
    for section in intervals:
        assert section.headers[:3] == ["Method", "Un, n\u00a0=\u00a02", "Paper"]
        for label, *numbers in _texts(section):
            assert numbers[::2] == numbers[1::2], label  # whose losses are those of the paper
    assert _texts(cost)[1][0] == "Full" and _texts(cost)[1][-1] == "24.00"


def test_figure_4_has_table_3_on_its_diagonal(study):
    drawn, *parts = ANALYSES["figure4"](study)[0]
    diagonal, matrices = parts[: len(INTERVALS)], parts[len(INTERVALS) :]
    assert drawn.png and len(matrices) == len(METHODS)
    for section in diagonal:
        assert len(section.rows) == len(METHODS)
        assert all(ours == theirs for _, ours, theirs in _texts(section))


def test_figure_3_and_table_2_have_both(study):
    drawn, *parts = ANALYSES["figure3"](study)[0]
    assert drawn.png and all(r[1] == r[2] for part in parts for r in _texts(part))
    ((table,), _) = ANALYSES["table2"](study)
    assert _texts(table)[1] == ["0801-0901 changed", "30", "1,209,272", "20", "2,329", "4", "1,776"]
    assert _texts(table)[2][2::2] == ["–"] * 3  # the paper has no deleted facts


def test_figure_5_shows_updates_and_new_information(tmp_path):
    root, text = write_study(tmp_path, count=2), "She won 3 cups. A new club, of 40 members, began."
    edits = [["number", 0, 15, [[8, 9]]], ["added", 16, 49, [[16, 49]]]]
    record = {"kind": "sentences", "text": text, "edits": edits}
    records = [{"page_id": i, "title": f"Page {i}", **record} for i in range(9)]
    records[1]["edits"] = [["reworded", 0, 15, [[4, 7]]]]
    # A new article's text has no edits.
    records.append({"page_id": 9, "title": "New", "kind": "new", "text": "All."})
    for interval in INTERVALS[:2]:
        folder = root / "data" / interval / "diffset"
        write_jsonl(folder / "shards" / "a.jsonl", records)
        dump = {"name": "x", "date": "20210901", "wiki": "enwiki"}
        manifest = {"format": 1, "new": dump, "options": {"deletions": False}}
        manifest |= {"files": ["shards/a.jsonl"], "records": {"sentences": 9, "new": 1}}
        write_json(folder / "manifest.json", manifest)
    (section, note), _ = ANALYSES["figure5"](results.load(root))
    assert section.headers[1:] == ["Kind", "Article", "Sentence", "New in it"]
    assert [row[1:] for row in _texts(section)[:6]] == [
        *(["information update", f"Page {i}", "She won 3 cups.", "3"] for i in (0, 2, 3)),
        *(["new information", f"Page {i}", text[16:], "all"] for i in (0, 2, 3)),
    ]
    assert len(section.rows) == 12 and "69363482" in note.notes[0]
    assert "those of a kind are each of another article" in section.notes[0]
    assert "page 3" in section.rows[2][2].below


def test_a_figure_without_data_says_why(tmp_path):
    root = write_study(tmp_path, methods=("lora",), count=2)
    loaded = results.load(root)  # whose dumps have no P31
    (types,), _ = ANALYSES["figure6"](loaded)
    (relations,), _ = ANALYSES["figure7"](loaded)
    assert relations.png and "does not print them" in relations.notes[0]
    assert not types.png and "instances of (P31)" in types.notes[0] and len(types.notes) == 1
    assert "Unchanged facts</text>" in write_report(root).read_text()  # of the course
    (root / "figures" / "averages.png").unlink()
    for path in root.rglob("rows_*.jsonl"):
        write_jsonl(path, (r for r in list(read_jsonl(path)) if r["class"] == "changed"))
    loaded = results.load(root)
    averages = ANALYSES["figure3"](loaded)[0][0]
    assert not averages.png and "both unchanged and changed facts" in averages.notes[0]
    page = write_report(root).read_text()
    assert averages.notes[0] in page and not (root / "figures" / "averages.png").exists()
    for made in (root / "data").glob("*/probes/manifest.json"):
        made.unlink()
    for name in ("figure6", "figure7"):
        assert "no unchanged or changed facts" in ANALYSES[name](loaded)[0][0].notes[0]
    assert (root / "figures" / "course.png").exists() and "Unchanged facts</text>" not in page


def test_published_table_2_keeps_what_the_paper_says():
    """Section 4: alignment and filters keep about these fractions."""
    for classes in published.TABLE_2.values():
        un, changed = classes["unchanged"], classes["changed"]
        assert 0.0195 <= un[1] / un[0] <= 0.023 and 0.0011 <= changed[1] / changed[0] <= 0.0022
        assert 0.68 <= un[2] / un[1] <= 0.70 and 0.56 <= changed[2] / changed[1] <= 0.78


def test_more_intervals_than_the_papers_have_no_numbers_of_it(study):
    longer = results.Study(
        study.root, study.settings, ("20210701-20210801", *INTERVALS), study.initial, study.models
    )
    *intervals, _ = ANALYSES["table3"](longer)[0]
    assert intervals[-1].title == f"{longer.label(INTERVALS[-1])} (in the paper: none)"
    assert {row[2] for row in _texts(intervals[-1])} == {"–"}


@pytest.mark.parametrize("name, tuned", [("table3", 7), ("table5", 500), ("figure2", 7)])
def test_an_experiment_takes_what_its_folder_has(tmp_path, name, tuned):
    updates = Updates(out=str(tmp_path))
    assert experiments._settings(name, updates).light_tuning == 500  # drawn for all of them
    write_json(tmp_path / results.RECORD, {"light_tuning": 7, "proper_nouns": 0})
    settings = experiments._settings(name, updates)
    assert settings.light_tuning == tuned
    assert settings.proper_nouns == (10_000 if name == "figure2" else 0)


def test_what_needs_no_model_says_nothing_of_perplexities(study, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.study, "run_study", lambda *_, **__: None)
    monkeypatch.setattr(experiments, "load", lambda *_, **__: study)
    for name in ("table2", "table3"):
        text = experiments.run(f"temporalwiki/{name}", Updates(out=str(tmp_path))).read_text()
        assert ("Below a perplexity is its 95 % interval" in text) == (name == "table3")
        assert ("before any update" in text) == (name == "table3")


@pytest.mark.filterwarnings("ignore:.*Light tuning has 0")
def test_what_is_about_text_alone_needs_no_facts(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
    rows = [
        {"id": f"p{i}", "date": date, "title": f"Page {i}", "text": f"Page {i}.\nIt is {age}.\n"}
        for i in range(30)
        for date, age in (("2024-01-01", "old"), ("2024-07-01", "new"))
    ]
    write_jsonl(tmp_path / "pages.jsonl", rows)
    snapshots = str(tmp_path / "snapshots")
    make = ["data", "snapshots", f"--documents={tmp_path}/pages.jsonl", f"--out={snapshots}"]
    assert ckl.main(make) == 0
    monkeypatch.chdir(tmp_path)  # the same files by another path
    assert ckl.main([*make[:2], "--documents=pages.jsonl", "--out=snapshots"]) == 0
    options = ["--snapshots", snapshots, f"--out={tmp_path}/out", "--size=tiny"]
    for name, code in (("table1", 0), ("figure5", 0), ("table2", 2)):
        assert ckl.main(["experiment", f"temporalwiki/{name}", *options]) == code
    assert "There are no facts to probe" in capsys.readouterr().err
    gate = ["--promote-if=changed < 1 at n >= 2", f"--out={tmp_path}/gate"]
    assert ckl.main(["temporalwiki", *options, *gate]) == 3
    verdict = read_json(tmp_path / "gate" / "verdict.json")["verdicts"][0]
    assert verdict["verdict"] == "not enough evidence" and "of 0 items" in verdict["sentence"]


@pytest.mark.parametrize("name, trainings", [("table3", 3), ("table2", 0)])
def test_a_dry_run_lists_the_trainings(tmp_path, capsys, name, trainings):
    out = tmp_path / "out"
    argv = ["experiment", f"temporalwiki/{name}", f"--out={out}", "--size=tiny", "--months=3"]
    assert ckl.main([*argv, "--methods=diff", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("to do") == trainings and not out.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*The caps leave")
def test_a_llama_from_dumps_to_tables(tmp_path):
    """Table 5 trains what is missing; Table 3 of the same folder then trains nothing."""
    argv = [f"--out={tmp_path}", "--size=tiny", "--months=2", "--jobs=1", "--architecture=llama"]
    argv += ["--methods=diff", "--gin=EPOCHS=1", "--light-tuning=9"]
    assert ckl.main(["experiment", "temporalwiki/table5", *argv]) == 0
    assert "| Diff | " in (tmp_path / "temporalwiki-table5.md").read_text()
    trained = sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("summary.json"))
    assert len(trained) == 2 + 2 * 2  # Initial, Diff, and both tuned on both classes
    assert ckl.main(["experiment", "temporalwiki/table3", *argv]) == 0
    assert sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("summary.json")) == trained
    assert "family = 'llama'" in (tmp_path / "initial" / "config.gin").read_text()

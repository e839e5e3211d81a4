"""`ckl temporalwiki` month after month: killed, with damaged or deleted dumps, without new text."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.files import write_jsonl
from ckl_jax.papers.temporalwiki import study as job
from ckl_jax.papers.temporalwiki import study_data
from ckl_jax.papers.temporalwiki.analysis import report
from ckl_jax.papers.temporalwiki.data import snapshots
from ckl_jax.papers.temporalwiki.settings import Updates
from ckl_jax.papers.temporalwiki.study_data import Data
from tests.papers.temporalwiki.conftest import DATES
from tests.tiny import ROOT, newest_step


def test_a_dump_may_be_fetched_again_until_its_data_are_made(tmp_path):
    before = ["20200501: a (5 bytes)", "20200601: b (5 bytes)", "20200701: c (5 bytes)"]
    built = tmp_path / "data" / "20200501-20200601" / "probes"
    built.mkdir(parents=True)
    (built / "manifest.json").write_text("{}")
    again = [*before[:2], "20200701: c (9 bytes)"]
    assert job._may_become(tmp_path, "snapshots", before, [*again, "20200801: d (5 bytes)"])
    assert job._may_become(tmp_path, "snapshots", before, before[:2])  # or be left out
    assert job._may_become(tmp_path, "snapshots", before, [*before[:2], "20200801: d (5 bytes)"])
    for now in (
        before[:1],
        [before[0], "20200601: b (9 bytes)", before[2]],
        ["20200501: a (9 bytes)", *before[1:]],
    ):
        assert not job._may_become(tmp_path, "snapshots", before, now)


@pytest.mark.filterwarnings("ignore:.*(Light tuning has|The caps leave)")
def test_what_needs_deleted_dumps_is_refused_before_it_is_recorded(dumps, tmp_path, capsys):
    """A refused figure must not keep the others from being drawn."""
    folder, out = tmp_path / "dumps", tmp_path / "out"
    shutil.copytree(dumps, folder)
    argv = [f"--out={out}", "--size=tiny", "--methods=diff", "--unchanged-fraction=1"]
    argv += ["--snapshots", *(str(folder / date) for date in DATES)]
    table = ["experiment", "temporalwiki/table2", *argv]
    assert ckl.main(table) == 0
    for path in folder.glob("*20200601*"):
        path.unlink()
    record = (out / job.RECORD).read_bytes()
    capsys.readouterr()
    assert ckl.main(["experiment", "temporalwiki/figure2", *argv]) == 2
    assert "The dumps of 20200601 have been deleted" in capsys.readouterr().err
    assert (out / job.RECORD).read_bytes() == record
    assert ckl.main(table) == 0
    # Nothing is trained, and still no snapshot is forgotten or taken in another size.
    one = next(folder.glob("*20200701*.xml.bz2"))
    one.write_bytes(one.read_bytes()[:-9])
    capsys.readouterr()
    assert ckl.main(table) == 2
    assert f"The dump {one.name} has " in capsys.readouterr().err
    assert ckl.main([*table[:-2], table[-1]]) == 2  # without the date that is deleted
    assert (out / job.RECORD).read_bytes() == record
    one.unlink()
    assert ckl.main([*table[:-2], table[-1]]) == 0
    known = [json.loads(text)["snapshots"] for text in (record, (out / job.RECORD).read_bytes())]
    assert known[0] == known[1] and len(known[0]) == 3


def test_whole_text_of_deleted_dumps_is_asked_for(tmp_path):
    data = Data(Updates(out=str(tmp_path)), ())
    gone = snapshots.Snapshot("20210101", "", "", was="20210101: a.xml.bz2, b.json.gz")
    with pytest.raises(
        UserError, match="20210101 have been deleted .* give a.xml.bz2, b.json.gz again"
    ):
        data.whole_text(gone)


def rows_of(run):
    return [p.read_bytes() for p in sorted(run.glob("**/probes/rows_*.jsonl"))]


@pytest.mark.slow
def test_interrupted_updates_go_on_and_a_month_is_added(one_device_each, tmp_path, capsys):
    """All of it at the smallest size: killed in a training, done, then given one more month."""
    out = tmp_path / "out"
    settings = ["EPOCHS=2", "BATCH_SIZE=4"]
    argv = [
        "temporalwiki",
        f"--out={out}",
        "--size=tiny",
        "--jobs=1",
        "--methods=diff,lora,full",
        "--relation-cap=1",  # the default leaves few facts, and says so
        *(f"--gin={s}" for s in settings),
    ]
    command = [sys.executable, "-c", "import sys; from ckl_jax.cli import ckl; ckl.main()", *argv]
    process = subprocess.Popen(
        [*command, "--months=2"], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    deadline = time.monotonic() + 400
    while newest_step(out / "20200501-20200601" / "vanilla") < 0:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "20200501-20200601" / "lora").exists()
    assert ckl.main([*argv, "--months=2", "--promote-if", "unchanged < 1e6"]) == 0
    said = capsys.readouterr().out
    assert "initial" not in said.split("2. Initial")[1].split("3. ")[0].splitlines()[1:]
    assert "Diff after 20200501-20200601 may ship" in said
    lora = out / "20200501-20200601" / "lora"
    before = rows_of(lora)
    assert ckl.main([*argv, "--months=3", "--promote-if", "unchanged < 1e-6"]) == 1
    assert "should not ship: unchanged < 1e-06 does not hold" in capsys.readouterr().out
    assert rows_of(lora)[1:] == before and (lora / "later" / "20200701").is_dir()
    assert "should not ship" in (out / "report.html").read_text()
    assert ckl.main([*argv, "--months=3", "--promote-if", "unchanged < 1 at n >= 99999"]) == 3
    page = (out / "report.html").read_text()
    assert "not enough evidence" in page and "should not ship" not in page
    capsys.readouterr()
    found = json.loads((out / "data" / "overlap.json").read_text())
    assert len(found) == 8 and len(found["20200601-20200701_changed"]) == 3
    assert all(o["exact"] == 0 < o["items"] for texts in found.values() for o in texts.values())
    assert "<td>20200601-20200701_changed" in (out / "report.html").read_text()
    tables = json.loads((out / "tables.json").read_text())
    matrix = tables["matrices"]["lora"]
    assert list(matrix) == ["", "20200501-20200601", "20200601-20200701"]
    assert all(cell for row in matrix.values() for cell in row.values())
    assert ckl.main(["claims", str(out), "--samples", "100"]) == 0
    claims = json.loads((out / "claims.json").read_text())["claims"]
    made = {row["claim"]: row["mean"] for row in claims if row["verdict"] != "not run"}
    assert made["an update costs less with Diff than with Full"] > 0 and len(made) == 6
    # LoRA's leaves are added once: the second update goes on with those of the first.
    sizes = [json.loads((out / i / "lora" / "summary.json").read_text()) for i in matrix if i]
    assert sizes[0]["total_parameters"] == sizes[1]["total_parameters"]
    assert [s["phase"] for s in sizes] == [1, 2]
    assert sizes[1]["base_checkpoint"] == str(lora)
    assert ckl.main([*argv, "--months=3", "--seed=1"]) == 2
    assert "holds a study with another seed (0, not 1)" in capsys.readouterr().err


@pytest.mark.slow
def test_text_without_facts_is_updated_and_measured(one_device_each, tmp_path, capsys):
    documents = [
        {
            "id": f"{page}",
            "date": date,
            "title": f"Page {page}",
            "text": f"Page {page} is about Anna Keller.\nIn {date[:4]} Anna Keller sold {n} boats.",
        }
        for n, date in enumerate(("2020-01-01", "2021-01-01", "2022-01-01"))
        for page in range(40)
    ]
    write_jsonl(tmp_path / "documents.jsonl", documents)
    out = tmp_path / "study"
    places = [f"--documents={tmp_path / 'documents.jsonl'}", f"--out={tmp_path / 'snapshots'}"]
    assert ckl.main(["data", "snapshots", *places]) == 0
    argv = ["temporalwiki", f"--snapshots={tmp_path / 'snapshots'}", f"--out={out}", "--size=tiny"]
    argv += ["--methods=diff", "--gin.gpt2.GPT2Config.vocab_size=400"]
    assert ckl.main(argv) == 2
    assert "or --proper-nouns to measure running text alone" in capsys.readouterr().err
    shutil.rmtree(out)
    first = [f"{tmp_path / 'snapshots'}/{date}" for date in ("20200101", "20210101")]
    begun = [a for a in argv if not a.startswith("--snapshots")] + ["--proper-nouns=20"]
    assert ckl.main([*begun, "--snapshots", *first]) == 0  # and then one more
    assert ckl.main([*argv, "--proper-nouns=20"]) == 0
    made = json.loads((out / "tables.json").read_text())
    assert [row["method"] for row in made["proper_nouns"]] == ["initial", "vanilla"]
    cells = made["proper_nouns"][1]["cells"]["20210101-20220101"]
    assert cells["changed_spans"]["value"] < 1 and cells["new"]["initial"] > 0
    (matrix,) = made["matrices"].values()
    assert all(cell["value"] > 1 for row in matrix.values() for cell in row.values())


@pytest.mark.slow
def test_a_month_without_new_text_trains_no_model_and_the_next_one_goes_on(
    one_device_each, tmp_path, capsys
):
    months = {f"2020-0{i + 1}-01": town for i, town in enumerate((1, 2, 2, 3, 3))}
    documents = [
        {"id": f"{page}", "date": date, "title": f"Page {page}", "text": text}
        for date, month in months.items()
        for page in range(40)
        for text in [f"Page {page} has town {page + 100 * month}.\nIt is near lake {page}."]
    ]
    documents[-1]["text"] += "\nThere is a mill."
    towns = {1: ("", "2020-02-01"), 2: ("2020-02-01", "2020-04-01"), 3: ("2020-04-01", "")}
    facts = [
        dict(zip(columns, (f"Page {page}", kind, f"{kind} {number}", *days), strict=True))
        for columns in [("subject", "relation", "object", "valid_from", "valid_to")]
        for page in range(40)
        for kind, number, days in [
            ("lake", page, ("", "")),
            *(("town", page + 100 * n, days) for n, days in towns.items()),
        ]
    ]
    write_jsonl(tmp_path / "documents.jsonl", documents)
    write_jsonl(tmp_path / "facts.jsonl", facts)
    places = [f"--{name}={tmp_path / name}.jsonl" for name in ("documents", "facts")]
    places += ["--complete", f"--out={tmp_path / 'snapshots'}"]
    assert ckl.main(["data", "snapshots", *places]) == 0
    out = tmp_path / "study"
    argv = ["temporalwiki", f"--out={out}", "--size=tiny", "--methods=diff,full", "--jobs=1"]
    argv += ["--gin.gpt2.GPT2Config.vocab_size=400", "--unchanged-fraction=1", "--relation-cap=1"]
    argv += ["--subject-cap=1", "--proper-nouns=20", "--snapshots"]
    argv += [f"{tmp_path / 'snapshots'}/2020{month:02}01" for month in range(1, 5)]
    assert ckl.main([*argv[:-2], "--promote-if=changed < 1e6"]) == 0
    capsys.readouterr()
    assert ckl.main([*argv[:-1], "--promote-if=changed < 1e6"]) == 3
    assert "changed is of 0 items" in capsys.readouterr().out
    assert ckl.main([*argv[:-1], "--promote-if=unchanged < 1e6"]) == 3
    said = capsys.readouterr().out
    empty, last = "20200201-20200301", "20200301-20200401"
    assert f"Diff has not enough evidence to ship: {study_data.TOO_SHORT}" in said
    assert f"Full after {empty} may ship" in said  # all of the snapshot is text to train on
    assert ckl.main(argv) == 0
    assert f"{empty}  {study_data.TOO_SHORT}" in capsys.readouterr().out
    diff = json.loads((out / last / "vanilla" / "summary.json").read_text())
    assert diff["base_checkpoint"] == str(out / "20200101-20200201" / "vanilla")
    matrix = json.loads((out / "tables.json").read_text())["matrices"]["vanilla"]
    assert empty not in matrix and matrix[last][last]["value"] > 1
    assert ckl.main([*argv, f"{tmp_path / 'snapshots'}/20200501"]) == 0  # of one page
    said = capsys.readouterr().out
    assert "20200401-20200501  1 article, " in said
    assert f"20200401-20200501  {study_data.TOO_SHORT}: without vanilla" in said


def test_a_damaged_dump_is_named_and_costs_one_step_only(dumps, tmp_path, monkeypatch, capsys):
    """What was finished stays; fetched again, its step alone is begun anew."""
    folder, out = tmp_path / "dumps", tmp_path / "out"
    shutil.copytree(dumps, folder)
    broken = next(folder.glob("wikidata-20200601*"))
    broken.write_bytes(broken.read_bytes()[:500])
    argv = [
        "temporalwiki",
        f"--out={out}",
        "--size=tiny",
        "--methods=diff",
        "--jobs=1",
        "--unchanged-fraction=1",
        "--gin=BATCH_SIZE=4",
        "--snapshots",
    ]
    places = [str(folder / date) for date in DATES[:2]]
    assert ckl.main([*argv, *places]) == 2
    err = capsys.readouterr().err
    assert str(broken) in err.splitlines()[-1]
    assert (out / "data" / "20200501-20200601" / "diffset" / "manifest.json").is_file()
    shutil.copy(next(dumps.glob("wikidata-20200601*")), broken)
    (out / "checkpoint_1").mkdir()  # as if there were models of earlier months
    assert ckl.main([*argv, *places, "--dry-run"]) == 0
    monkeypatch.setattr(job, "_train", lambda *_: None)  # what follows is tested elsewhere
    monkeypatch.setattr(report, "write_report", lambda root: root)
    assert ckl.main([*argv, *places]) == 0
    probes = out / "data" / "20200501-20200601" / "probes"
    said = capsys.readouterr().out
    assert (
        f"{probes} was begun when {broken.name} had another size or content; it is begun anew"
        in said
    )
    clean = tmp_path / "clean"
    argv[1] = f"--out={clean}"
    assert ckl.main([*argv, *(str(dumps / date) for date in DATES[:2])]) == 0
    for path in (clean / "probes").iterdir():
        assert path.read_bytes() == (out / "probes" / path.name).read_bytes()
    (out / "checkpoint_1").rmdir()
    with open(broken, "ab") as f:
        f.write(b" ")
    argv[1] = f"--out={out}"
    assert ckl.main([*argv, *places]) == 2  # what is finished stays
    assert f"The dump {broken.name} has 6,001 bytes, and had 6,000" in capsys.readouterr().err

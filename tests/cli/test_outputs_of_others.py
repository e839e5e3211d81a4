"""What a command may not write over, and what it leaves where it is refused: nothing."""

import resource

import pytest

from ckl_jax.cli import ckl
from ckl_jax.files import write_jsonl
from tests.cli.test_hostile_files import DOCUMENT, GOOD, refused
from tests.tiny import read_rows

# What writes to --out, in a few words that are enough to get there, and the name of a file that it
# would write. In capitals: files.
WRITERS = {
    "world --size tiny --out OUT": "notes.txt",
    "data prepare --dir CKL --out OUT": "vocabulary.model",
    "data prepare --dir CKL --out OUT ": "vocabulary.json",
    "data prepare --dir CKL --out OUT --vocab-size 300": "tasks/d1/manifest.json",
    "data rows --documents DOCUMENTS --vocabulary VOCABULARY --out OUT": "documents/manifest.json",
    "data dated --documents DOCUMENTS --vocabulary VOCABULARY --out OUT": "documents.jsonl",
    "data kilt --size tiny --out OUT": "nq-dev-kilt.jsonl",
    "data dated --documents DOCUMENTS --vocabulary VOCABULARY --out OUT ": "targets.offsets",
    "data prepare --dir CKL --out OUT --vocab-size 700": "tasks/d0/inputs.offsets",
    "data dumps --size tiny --months 2 --out OUT": "notes.txt",
    "data dumps --size tiny --months 2 --out OUT --dry-run": "notes.txt",
    "data quiz --size tiny --out OUT": "P19.jsonl",
    "data stream --size tiny --out OUT/s.jsonl": "s.jsonl",
    "data questions --size tiny --out OUT/q.jsonl": "q.jsonl",
    "data clean --documents DOCUMENTS --out OUT/c.jsonl": "c.jsonl",
    "data clean --documents DOCUMENTS --out OUT/c.jsonl ": "c.clean.json",
    "data clean --documents DOCUMENTS --out OUT/c.jsonl  ": ".c.jsonl.work/settings.json",
    "data vocabulary --documents DOCUMENTS --out OUT/v.model": "v.model",
    "data trex --facts DOCUMENTS --invariant CKL/invariantLAMA.csv --out OUT/t.csv": "t.csv",
    "data benchmark --facts CKL/facts.jsonl --dates 2019-06-01 2020-01-01 --out OUT": "notes.txt",
    "import-hf --model HF --out OUT": "model.gin",
    "export-hf --model RUN --like HF/config.json --out OUT": "config.json",
    "average RUN RUN --out OUT": "checkpoint_0/notes.txt",
    "average RUN RUN --out OUT ": "config.gin",
    "report RUN --out OUT": "report.html",
    "report RUN/.. --out OUT": "table.json",
    "report RUN/.. --out OUT ": "figures/curves.png",
    "report RUN RUN --seeds --out OUT": "seeds.md",
    "staleness --model a=RUN --control RUN --out OUT": "results.json",
    "staleness --model a=RUN --control RUN --out OUT ": "months.png",
    "probe bear --model HF --dataset DATASET --out OUT": "summary.json",
    "probe bear --model HF --dataset DATASET --out OUT ": "P1_results.jsonl",
    "probe compare a=HF b=HF --out OUT": "comparison.json",
    "probe compare a=GOLD b=GOLD --out OUT": "domains.png",
    "probe checkpoints --model a=HF --model b=HF --dataset DATASET --out OUT": "checkpoints.png",
    "probe fill --model HF --dataset DATASET --out OUT": "items.jsonl",
    "claims RUN --out OUT": "claims.html",
    "data snapshots --documents DOCUMENTS --facts CKL/facts.jsonl --dates 2020-01-01,2020-02-01 "
    "--out OUT": "notes.txt",
    "demo --size tiny --out OUT": "report.html",
    "experiment ckl/table2 --out OUT": "notes.txt",
    "experiment mind_the_gap/figure1 --out OUT": "notes.txt",
    "mind-the-gap --size tiny --out OUT": "report.html",
    "stream --size tiny --out OUT": "report.html",
    "temporalwiki --size tiny --out OUT": "report.html",
    "data review CKL --out OUT/r.html": "r.html",
}


@pytest.mark.parametrize("command", WRITERS)
def test_what_others_have_made_stays(command, tiny, golden, tmp_path, capsys):
    """Every command leaves a file that is not its own as it is, byte for byte."""
    out, documents = tmp_path / "out", tmp_path / "documents.jsonl"
    foreign = out / WRITERS[command]
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    documents.write_text(GOOD)
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    places = {"OUT": out, "DOCUMENTS": documents, "VOCABULARY": vocabulary, "CKL": tiny.probes}
    places |= {"HF": golden / "model", "RUN": tiny.root / "initial"}
    places |= {"DATASET": golden / "dataset", "GOLD": golden / "results" / "sum"}
    for name, path in places.items():
        command = command.replace(name, str(path))
    assert "out" in refused(capsys, command.split())
    held = [path for path in out.rglob("*") if path.is_file()]
    assert held == [foreign] and foreign.read_text() == "mine"


def test_a_mark_that_is_no_text_is_another_ones(tmp_path, capsys):
    (tmp_path / ".made_by").write_bytes(b"ckl data dumps\xe9")
    argv = ["data", "dumps", "--size", "tiny", "--months", "2", "--out", str(tmp_path)]
    assert "is there already" in refused(capsys, argv)


def test_a_file_in_place_of_a_folder_is_called_one(tmp_path, capsys):
    (tmp_path / "out").write_text("mine")
    argv = ["world", "--size", "tiny", "--out", str(tmp_path / "out"), "--overwrite"]
    assert "out is a file; choose another --out for the folder" in refused(capsys, argv)
    assert (tmp_path / "out").read_text() == "mine"


# Commands that are refused after they have begun to write, or are about to.
HALVES = {
    "data rows --documents BAD --vocabulary VOCABULARY --out OUT": "bad.jsonl, line 2",
    "data clean --documents DOCUMENTS --language \udcff --out OUT/c.jsonl": "'\\udcff' in it is no",
    "data snapshots --documents BAD --id-field date --facts FACTS --dates 2020-01-01 --out OUT": (
        "bad.jsonl, line 2"
    ),
}


@pytest.mark.parametrize("command", HALVES)
def test_a_refusal_leaves_no_folder(command, tiny, tmp_path, capsys):
    (tmp_path / "documents.jsonl").write_text(GOOD)
    (tmp_path / "bad.jsonl").write_text(f"{GOOD}\n{{")
    places = {"OUT": tmp_path / "out", "FACTS": tiny.probes / "facts.jsonl"}
    places |= {"DOCUMENTS": tmp_path / "documents.jsonl", "BAD": tmp_path / "bad.jsonl"}
    places |= {"VOCABULARY": tiny.root / "world" / "prepared" / "vocabulary.model"}
    argv = [str(places.get(w, w.replace("OUT/", f"{tmp_path}/out/"))) for w in command.split()]
    assert HALVES[command] in refused(capsys, argv)
    assert not (tmp_path / "out").exists()


SPLIT = "data split --documents DOCUMENTS --unit month --test-period 1 --validation-months 1"
CHANGED = {
    "data clean --documents DOCUMENTS --language-id none --workers 1 --out OUT/c.jsonl": "inputs",
    f"{SPLIT} --out OUT": "another size or content",
}


@pytest.mark.parametrize("command", CHANGED)
def test_what_was_made_of_other_text_of_the_same_size_is_not_taken(command, tmp_path, capsys):
    file, out = tmp_path / "in.jsonl", tmp_path / "out"
    rows = [{**DOCUMENT, "id": f"{m:02}{i}"} for m in range(1, 13) for i in range(9)]
    rows = [{**row, "date": f"2020-{row['id'][:2]}-0{1 + int(row['id'][2:])}"} for row in rows]
    write_jsonl(file, rows)
    argv = command.replace("DOCUMENTS", str(file)).replace("OUT", str(out)).split()
    assert ckl.main(argv) == 0 and ckl.main(argv) == 0
    capsys.readouterr()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    file.write_text(file.read_text().replace("sentence", "SENTENCE"))
    assert CHANGED[command] in refused(capsys, argv)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


FILLERS = (
    "world --size tiny --out OUT",
    "data quiz --size tiny --out OUT",
    "data kilt --size tiny --out OUT",
    "data benchmark --facts CKL/facts.jsonl --dates 2019-06-01 2020-01-01 --templates T --out OUT",
    "data rows --documents DOCUMENTS --vocabulary VOCABULARY --length 16 --out OUT",
    "import-hf --model HF --out OUT",
)


@pytest.mark.parametrize("command", FILLERS)
def test_a_full_disk_leaves_no_part(command, tiny, golden, tmp_path, capsys):
    out, soft = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "documents.jsonl").write_text(f"{GOOD}\n" * 2000)
    relations = {fact["relation"] for fact in read_rows(tiny.probes / "facts.jsonl")}
    made = [{"relation": name, "cloze": "[Y] is of [X]."} for name in sorted(relations)]
    write_jsonl(tmp_path / "t.jsonl", made)
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    places = {"OUT": out, "DOCUMENTS": tmp_path / "documents.jsonl", "VOCABULARY": vocabulary}
    places |= {"CKL": tiny.probes, "HF": golden / "model", "T": tmp_path / "t.jsonl"}
    argv = [places.get(word, word.replace("CKL", str(tiny.probes))) for word in command.split()]
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, soft[1]))
        assert "too large" in refused(capsys, [str(word) for word in argv])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    assert not list(out.rglob("*")) and not list(tmp_path.rglob("*.part"))

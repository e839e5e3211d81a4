"""Diffsets and probes as Beam pipelines are those of the processes, file by file."""

import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")
pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli.ckl import main
from ckl_jax.data.builders import beam_diffsets, diffsets
from ckl_jax.data.builders.diffsets import Options, plan
from ckl_jax.world import dump_files
from ckl_jax.world.timeline import make_world
from tests.data.builders.dump_files import dump, page, write, write_multistream
from tests.data.builders.test_diffsets import EXPECTED, GONE, NEW, OLD, numbered, rows

pytestmark = pytest.mark.slow
MONTHS = 3


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    with pytest.MonkeyPatch.context() as m:
        m.setattr(dump_files, "_PER_STREAM", 10)
        manifest = dump_files.write_dumps(make_world(1, "tiny"), folder, MONTHS)
    return [
        {kind: str(folder / row[kind]) for kind in ("wikipedia", "wikidata")}
        for row in manifest["dates"].values()
    ]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(beam_diffsets, "PIECE_BYTES", 1000)


def files(folder):
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    found.pop("sorted.json", None)  # the processes' marker of --unsorted
    return found


@pytest.mark.parametrize("shards", [1, 3])
def test_simulated_months_give_the_same_diffset(months, tmp_path, shards):
    old, new = months[0]["wikipedia"], months[-1]["wikipedia"]
    options = Options(deletions=True, shards=shards)
    wanted = diffsets.build(plan(old, new, tmp_path / "pool", options))
    todo = plan(old, new, tmp_path / "beam", options)
    assert len(todo.shards) == shards and len(beam_diffsets.pieces(todo.new, 1000)) > 4
    assert beam_diffsets.build(todo) == wanted
    assert wanted["articles"] > 10 and len(wanted["pages"]) >= 6
    assert files(tmp_path / "beam") == files(tmp_path / "pool")


def test_a_whole_snapshot_is_the_same(months, tmp_path):
    new = months[0]["wikipedia"]
    wanted = diffsets.build(plan(None, new, tmp_path / "pool", Options(shards=3)))
    assert beam_diffsets.build(plan(None, new, tmp_path / "beam", Options(shards=3))) == wanted
    assert files(tmp_path / "beam") == files(tmp_path / "pool")


def test_all_kinds_of_pages_in_dumps_without_an_order(tmp_path):
    paths = [
        write(tmp_path / f"e-2020010{i}.xml.gz", dump(pages[::-1]))
        for i, pages in enumerate((OLD, NEW), 1)
    ]
    options = Options(unsorted=True, shards=3, deletions=True)
    manifest = beam_diffsets.build(plan(*paths, tmp_path / "beam", options))
    assert sorted(rows(tmp_path / "beam")) == sorted(EXPECTED + GONE)
    assert manifest == diffsets.build(plan(*paths, tmp_path / "pool", options))
    assert files(tmp_path / "beam") == files(tmp_path / "pool")


def test_what_processes_have_finished_is_not_done_again(tmp_path, monkeypatch):
    old = write_multistream(tmp_path / "e-20200101-m.xml.bz2", numbered(OLD))
    new = write_multistream(tmp_path / "e-20200201-m.xml.bz2", numbered(NEW))
    todo = plan(old, new, tmp_path / "out", Options(shards=4))
    assert diffsets.build(todo, part=(0, 2)) is None
    before = {i: todo.path(i, ".jsonl").stat().st_mtime_ns for i in (0, 2)}
    beam_diffsets.build(todo)
    assert rows(tmp_path / "out") == EXPECTED
    assert before == {i: todo.path(i, ".jsonl").stat().st_mtime_ns for i in (0, 2)}


def test_bad_input_is_one_sentence(tmp_path, capsys):
    old = write(tmp_path / "e-20200101.xml", dump(OLD))
    twice = write(tmp_path / "e-20200301.xml", dump([page(3, "A", "x"), page(3, "C", "z")]))
    whole = write(tmp_path / "e-20200201.xml.bz2", dump(NEW))
    cut = tmp_path / "e-20200401.xml.bz2"
    cut.write_bytes(whole.read_bytes()[:-40])

    def complaint(new, options, *more):
        out = tmp_path / f"out{new.stem}"
        command = ["data", "diffsets", "--old", str(old), "--new", str(new), "--out", str(out)]
        assert main([*command, f"--beam={options}", *more]) == 2
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("ckl: ") and "while running" not in error
        return error

    assert "page id 3 ('C') was there before" in complaint(twice, "")
    assert "is truncated" in complaint(cut, "")
    assert "Beam has no option '--flink_mastre=x'" in complaint(whole, "--flink_mastre=x")
    assert "--direct_num_workers: invalid int value" in complaint(whole, "--direct_num_workers=two")
    assert "Unexpected pipeline runner: Fling" in complaint(whole, "--runner=Fling")
    assert "No closing quotation" in complaint(whole, "--runner='x")
    assert "leave --shard away" in complaint(whole, "", "--shard", "0/2")
    assert not (tmp_path / f"out{whole.stem}").exists()

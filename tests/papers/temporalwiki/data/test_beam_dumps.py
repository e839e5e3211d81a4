"""Diffsets and probes as Beam pipelines are those of the processes, file by file."""

import gzip
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")
pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli.ckl import main
from ckl_jax.data import beam, dump_writer
from ckl_jax.data.facts.wikidata_json import FactRules, read_entities
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import (
    beam_diffsets,
    beam_probes,
    diffsets,
    probe_stages,
    probes,
)
from ckl_jax.papers.temporalwiki.data.diffsets import Options, plan
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.world import dump_files
from ckl_jax.world.timeline import make_world
from tests.papers.temporalwiki.data.dump_files import dump, page, write, write_multistream
from tests.papers.temporalwiki.data.test_diffsets import EXPECTED, GONE, NEW, OLD, numbered, rows

pytestmark = pytest.mark.slow
MONTHS = 3
OTHER_PROCESS = "--direct_running_mode=multi_processing --direct_num_workers=1"


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    with pytest.MonkeyPatch.context() as m:
        m.setattr(dump_writer, "PAGES_PER_STREAM", 10)
        manifest = dump_files.write_dumps(make_world(1, "tiny", "legacy"), folder, MONTHS)
    for row in manifest["dates"].values():
        add_types(folder / row["wikidata"])
    return [
        {kind: str(folder / row[kind]) for kind in ("wikipedia", "wikidata")}
        for row in manifest["dates"].values()
    ]


def add_types(path):
    """Makes the items of a dump instances of others: the world has no P31."""
    lines = [line.rstrip(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    entities = [json.loads(line) for line in lines if line not in "[]"]
    numbers = [int(e["id"][1:]) for e in entities if e["id"][0] == "Q"]
    for entity in entities:
        if entity["id"][0] == "Q":
            entity["aliases"] = {
                "en": [{"value": label["value"]} for label in entity["labels"].values()]
            }
            kind = numbers[int(entity["id"][1:]) % 5]
            value = {"entity-type": "item", "id": f"Q{kind}", "numeric-id": kind}
            snak = {
                "snaktype": "value",
                "property": "P31",
                "datavalue": {"type": "wikibase-entityid", "value": value},
            }
            claims = entity.get("claims") or {}
            entity["claims"] = claims | {"P31": [{"mainsnak": snak, "rank": "normal"}]}
    write(path, "[\n" + ",\n".join(map(json.dumps, entities)) + "\n]\n")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(beam_diffsets, "PIECE_BYTES", 1000)
    monkeypatch.setattr(beam_probes, "PIECE_BYTES", 1000)
    monkeypatch.setattr(beam_probes, "READER_BYTES", 2000)


def files(folder):
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    found.pop("sorted.json", None)  # the processes' marker of --unsorted
    return found


def test_documented_options_are_beams():
    text = (Path(__file__).parents[4] / "docs/dumps_at_scale.md").read_text()
    documented = re.findall(r"^--beam='(.*)'$", text, re.MULTILINE)
    assert len(documented) >= 8
    for arguments in documented:
        assert beam.known_flags(beam.import_beam(), arguments) == arguments.split()


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
    assert "page id 3 ('C') was there before" in complaint(twice, OTHER_PROCESS)
    assert "is truncated" in complaint(cut, "")
    assert "Beam has no option '--flink_mastre=x'" in complaint(whole, "--flink_mastre=x")
    assert "--direct_num_workers: invalid int value" in complaint(whole, "--direct_num_workers=two")
    assert "Unexpected pipeline runner: Fling" in complaint(whole, "--runner=Fling")
    assert "No closing quotation" in complaint(whole, "--runner='x")
    assert "leave --shard away" in complaint(whole, "", "--shard", "0/2")
    assert not (tmp_path / f"out{whole.stem}").exists()


# --- probes


@pytest.fixture(scope="module")
def diffset(months, tmp_path_factory):
    folder = tmp_path_factory.mktemp("diffset") / "diff"
    dumps = (months[i]["wikipedia"] for i in (0, -1))
    diffsets.build(plan(*dumps, folder, Options(deletions=True)))
    return str(folder)


def job(months, diffset, out, **changes):
    old, new = months[0], months[-1]
    inputs = dict(
        old=old["wikidata"],
        new=new["wikidata"],
        diffset=diffset,
        wikipedia=new["wikipedia"],
        out=out,
        rules=FactRules(site=dump_files.SITE),
        unchanged_fraction=1.0,
        buckets=3,
    )
    return Job(**{**inputs, **changes})


def check_probes(wanted, found, tmp_path):
    assert found == wanted
    tables = [
        {path.name: path.read_bytes() for path in folder.glob("*.*") if path.stem != "manifest"}
        for folder in (tmp_path / "pool", tmp_path / "beam")
    ]
    assert tables[0] == tables[1] and len(tables[0]) >= 10
    for name in ("rows", "aligned"):
        paths = [sorted((tmp_path / side / name).iterdir()) for side in ("pool", "beam")]
        lines = [[sorted(p.read_text().splitlines()) for p in side] for side in paths]
        assert lines[0] == lines[1] and any(lines[0])


@pytest.mark.filterwarnings("ignore:.*Light tuning has")
@pytest.mark.filterwarnings("ignore:.*became a probe")
def test_simulated_months_give_the_same_probes(months, diffset, tmp_path):
    ends = dict(keep=True, light_tuning=10)
    wanted = probes.build(job(months, diffset, tmp_path / "pool"), **ends)
    todo = job(months, diffset, tmp_path / "beam")
    assert len(beam_probes._parts(todo)) > 2
    check_probes(wanted, beam_probes.build(todo, OTHER_PROCESS, **ends), tmp_path)
    kinds = {p.kind for p in probe_stages.aligned(todo)}
    assert kinds == {"unchanged", "updated", "new", "deleted", "ended"}
    assert any(p.old_objects for p in probe_stages.aligned(todo))
    assert any(p.subject_type and p.object_type for p in probe_stages.aligned(todo))


@pytest.mark.filterwarnings("ignore:.*became a probe")
def test_a_sample_and_a_page_map_are_the_same(months, diffset, tmp_path):
    numbers = {r["title"]: r["page_id"] for r in diffsets.read_records(diffset)}
    entities = read_entities(months[-1]["wikidata"], FactRules(site=dump_files.SITE))
    pairs = [(numbers[e.title], e.id) for e in entities if e.title in numbers]
    lines = ["page_id\twikidata_id"] + [f"{page}\t{item}" for page, item in pairs]
    table = write(tmp_path / "map.tsv", "\n".join(lines))
    options = dict(
        page_map=str(table),
        unchanged_fraction=0.4,
        seed=3,
        skip_new_subjects=True,
        properties=months[1]["wikidata"],
    )
    wanted = probes.build(job(months, diffset, tmp_path / "pool", **options), keep=True)
    found = beam_probes.build(job(months, diffset, tmp_path / "beam", **options), keep=True)
    check_probes(wanted, found, tmp_path)
    assert wanted["steps"]["items skipped as new"] > 0


def test_aliases_are_the_same(months, diffset, tmp_path):
    rules = FactRules(site=dump_files.SITE, aliases=True)
    ends = dict(keep=True)
    wanted = probes.build(job(months, diffset, tmp_path / "pool", rules=rules), **ends)
    todo = job(months, diffset, tmp_path / "beam", rules=rules)
    check_probes(wanted, beam_probes.build(todo, **ends), tmp_path)
    assert any(p.aliases for p in probe_stages.aligned(todo))


def test_bad_wikidata_is_one_sentence(months, diffset, tmp_path):
    def complaint(arguments="", **changes):
        with pytest.raises(UserError) as e:
            beam_probes.build(job(months, diffset, tmp_path / "out", **changes), arguments)
        return str(e.value)

    assert "Beam has no option '--bad'" in complaint("--bad")
    assert "no Wikidata dump" in complaint(old=str(tmp_path / "absent.json"))
    assert not (tmp_path / "out").exists()
    twice = '{"id": "Q1"}\n{"id": "Q1"}\n'
    path = str(write(tmp_path / "20200101.json", twice))
    assert complaint(old=path) == (
        f"{path}, line 2: item Q1 was there before, in line 1; a dump has every item once."
    )

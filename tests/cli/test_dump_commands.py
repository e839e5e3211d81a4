"""The commands on dumps: they end in files, or in one sentence and exit code 2."""

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl
from ckl_jax.data.text.documents import read_documents
from ckl_jax.papers.temporalwiki.data.dumps import open_dump
from tests.papers.temporalwiki.data.dump_files import page, write_multistream


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    assert ckl.main(["data", "dumps", "--out", str(folder), "--size", "tiny", "--months", "2"]) == 0
    return folder


def wiki(folder, stamp):
    return str(folder / f"simwiki-{stamp}-pages-articles-multistream.xml.bz2")


def diffset(world, out, *more):
    dumps = ["--old", wiki(world, "20200501"), "--new", wiki(world, "20200601")]
    return ["data", "diffsets", *dumps, "--out", str(out), "--workers", "1", *more]


def probes(world, diff, out, *more):
    dumps = [
        f"--{side}={world}/wikidata-2020{d}01-all.json.gz"
        for side, d in (("old", "05"), ("new", "06"))
    ]
    inputs = ["--diffset", str(diff), "--wikipedia", wiki(world, "20200601"), *dumps]
    return ["data", "probes", *inputs, "--out", str(out), "--workers", "1", *more]


def test_a_dump_compared_with_nothing_is_taken_whole(world, tmp_path):
    out = tmp_path / "whole"
    argv = ["data", "diffsets", "--new", wiki(world, "20200601"), "--out", str(out)]
    assert ckl.main([*argv, "--workers", "1", "--dry-run"]) == 0 and not out.exists()
    assert ckl.main([*argv, "--workers", "1"]) == 0
    titles = [d.title for d in read_documents(out / "wikipedia_20200601.jsonl")]
    dump = open_dump(wiki(world, "20200601"))
    articles = [p.title for p in dump.pages() if not p.redirect]
    assert titles == articles and len(titles) > 50


def test_dumps_are_compared_with_the_sums_beside_them(world, tmp_path, capsys):
    kept = [wiki(world, "20200601"), f"{world}/wikidata-20200601-all.json.gz"]
    made = tmp_path / "diff"
    assert ckl.main(diffset(world, made)) == 0
    for path in kept:
        sums = tmp_path / "sums" / os.path.basename(path)
        sums.mkdir(parents=True)
        for file in os.listdir(world):
            os.symlink(f"{world}/{file}", sums / file)
        (sums / "simwiki-20200601-sha1sums.txt").write_text(f"{'0' * 40}  {sums.name}\n")
        out = tmp_path / "out"
        argv = diffset(sums, out) if path is kept[0] else probes(sums, made, out)
        line = sentence(capsys, argv)
        assert f"{sums / sums.name} is damaged or unfinished: its SHA-1" in line
        assert not out.exists()


def test_beam_needs_its_package(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)  # as if it were not installed
    assert ckl.main(diffset(world, tmp_path / "diff")) == 0
    for argv in (diffset(world, tmp_path / "d"), probes(world, tmp_path / "diff", tmp_path / "p")):
        line = sentence(capsys, [*argv, "--beam="])
        assert "Beam pipelines need" in line and "ckl-jax[beam]" in line
    assert not (tmp_path / "d").exists() and not (tmp_path / "p").exists()


def sentence(capsys, argv):
    capsys.readouterr()
    assert ckl.main(argv) == 2
    err = capsys.readouterr().err
    line = err.splitlines()[-1]
    assert line.startswith("ckl: ") and "Traceback" not in err
    return line


def test_dumps_to_diffset_to_probes(world, tmp_path, capsys):
    diff, out = tmp_path / "diff", tmp_path / "probes"
    assert ckl.main(diffset(world, diff, "--deletions", "--dry-run")) == 0 and not diff.exists()
    assert ckl.main(diffset(world, diff, "--deletions")) == 0
    text = capsys.readouterr().out
    assert "pages: same revision" in text and "wikipedia_20200501_20200601_subset.csv" in text
    documents = list(read_documents(diff / "diffset_20200501_20200601.jsonl"))
    assert documents and {d.date for d in documents} == {"2020-06-01"}
    assert ckl.main(probes(world, diff, out, "--dry-run")) == 0 and not out.exists()
    assert ckl.main(probes(world, diff, out, "--unchanged-fraction", "1")) == 0
    assert "initial" in capsys.readouterr().out and (out / "0501-0601_changed.csv").is_file()
    assert ckl.main(diffset(world, diff, "--deletions")) == 0  # finished: nothing to do
    again = (diffset(world, diff, "--dry-run"), probes(world, diff, out, "--dry-run"))
    for argv, changed in zip(again, ("options", "unchanged_fraction"), strict=True):
        assert f"was begun with other settings ({changed})" in sentence(capsys, argv)


@pytest.mark.parametrize(
    "flags, expected",
    [
        (("--shard", "3/2"), "--shard is '3/2'; give I/N"),
        (("--shard", "1" * 6000 + "/2"), f"--shard is '{'1' * 40}'; give I/N"),
        (("--workers", "-1"), "--workers is -1"),
        (("--namespaces", "a"), "--namespaces is 'a'"),
        (("--shards", "-2"), "--shards is -2"),
        (("--new", "absent.xml"), "There is no dump absent.xml"),
    ],
)
def test_bad_flags(world, tmp_path, capsys, flags, expected):
    assert expected in sentence(capsys, diffset(world, tmp_path / "o", *flags))
    assert not (tmp_path / "o").exists()


def test_bad_dumps(world, tmp_path, capsys):
    new = tmp_path / "simwiki-20200601-cut.xml.bz2"
    with open(wiki(world, "20200601"), "rb") as f:
        new.write_bytes(f.read()[:-30])
    line = sentence(capsys, diffset(world, tmp_path / "o", "--new", str(new)))
    assert str(new) in line and "truncated" in line
    swapped = ["--old", wiki(world, "20200601"), "--new", wiki(world, "20200501")]
    assert "newer than the new one" in sentence(capsys, diffset(world, tmp_path / "p", *swapped))
    line = sentence(capsys, probes(world, tmp_path, tmp_path / "q"))
    assert "no finished diffset" in line
    flags = ("--unchanged-fraction", "0")
    assert "in (0, 1]" in sentence(capsys, probes(world, tmp_path, tmp_path / "q", *flags))
    bucket = diffset(world, "gs://bucket/diffset")
    assert "gs:/bucket/diffset is an address; give a local folder" in sentence(capsys, bucket)
    months = ["data", "dumps", "--out", str(tmp_path / "r"), "--size", "tiny", "--months", "1"]
    assert "2 to 13" in sentence(capsys, months)


def test_an_error_in_a_worker_is_the_same_sentence(world, tmp_path):
    data = bytearray(open(wiki(world, "20200601"), "rb").read())
    data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
    new = tmp_path / "simwiki-20200601-bad.xml.bz2"
    new.write_bytes(data)
    argv = diffset(world, tmp_path / "o", "--new", str(new), "--workers", "2")
    done = subprocess.run(
        [sys.executable, "-m", "ckl_jax.cli.ckl", *argv],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=60,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "damaged near byte" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_files(tmp_path):
    paths = []
    for stamp, word in (("20200101", "old"), ("20200201", "new")):
        text, number = f"It is {word}. " * 400, len(paths)
        pages = [(n, page(n, f"T{n}", text, revision=10 * n + number)) for n in range(1, 61)]
        path = tmp_path / f"enwiki-{stamp}-multistream.xml.bz2"
        paths.append(str(write_multistream(path, pages, per_stream=1)))
    dumps = ["--old", paths[0], "--new", paths[1], "--shards", "60", "--workers", "1", "--out"]
    argv = ["data", "diffsets", *dumps]
    assert ckl.main([*argv, str(tmp_path / "whole")]) == 0
    out, shards = tmp_path / "killed", tmp_path / "killed/shards"
    run = subprocess.Popen(
        [sys.executable, "-m", "ckl_jax.cli.ckl", *argv, str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(shards.glob("*.json")) and run.poll() is None:
        time.sleep(0.001)
    run.kill()
    run.wait()
    assert not (out / "manifest.json").exists()
    assert ckl.main([*argv, str(out)]) == 0

    def files(folder):
        return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert files(out) == files(tmp_path / "whole") and len(files(out)) == 2 * 60 + 4

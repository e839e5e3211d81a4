"""Diffsets and probes as SeqIO tasks and through TFDS: what the files say."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")
from ckl_jax.cli import ckl
from ckl_jax.data.facts.fact_files import read_probe_csv
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data.diffsets import read_records

pytestmark = pytest.mark.slow  # importing SeqIO and TFDS takes many seconds


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twiki")
    wiki = f"{folder}/simwiki-%s-pages-articles-multistream.xml.bz2"
    new = ["--wikipedia", wiki % "20200701", "--new", f"{folder}/wikidata-20200701-all.json.gz"]
    diff, probes = folder / "diff", folder / "probes"
    for argv in (
        ["dumps", "--size", "tiny", "--months", "3", "--out", str(folder)],
        ["diffsets", "--old", wiki % "20200501", "--new", wiki % "20200701", "--out", str(diff)],
        [
            "probes",
            "--old",
            f"{folder}/wikidata-20200501-all.json.gz",
            *new,
            "--diffset",
            str(diff),
            "--out",
            str(probes),
            "--unchanged-fraction",
            "1",
            "--workers",
            "1",
        ],
    ):
        assert ckl.main(["data", *argv]) == 0
    return diff, probes


def test_seqio_tasks(built):
    seqio = pytest.importorskip("seqio")
    from ckl_jax.tasks.temporalwiki import register_diffset, register_probes

    diff, probes = built
    vocabulary = seqio.ByteVocabulary()

    def texts(name, split):
        dataset = seqio.get_mixture_or_task(name).get_dataset(None, split, shuffle=False)
        return [vocabulary.decode(r["targets"].tolist()) for r in dataset.as_numpy_iterator()]

    name = register_diffset(diff, vocabulary)
    assert name == "twiki_diff_20200501_20200701_lm"
    documents = read_documents(diff / "diffset_20200501_20200701.jsonl")
    assert texts(name, "train") == [f"{d.title}. {d.text}" for d in documents]
    names = register_probes(probes, vocabulary)
    assert {"twiki_probes_0501_0701_unchanged", "twiki_probes_0501_0701_changed"} <= set(names)
    rows = read_probe_csv(probes / "0501-0701_changed.csv")
    expected = [f"{r['subject']} {r['relation']} {r['object']}" for r in rows]
    assert texts("twiki_probes_0501_0701_changed", "validation") == expected != []
    with pytest.raises(UserError, match="no finished diffset"):
        register_diffset(probes / "absent", vocabulary)


def test_tfds_needs_no_tensorflow(built, tmp_path):
    pytest.importorskip("tensorflow_datasets")
    code = (
        "import sys, json\n"
        "from ckl_jax.tasks.temporalwiki_tfds import TwikiDiffset\n"
        f"b = TwikiDiffset(source={str(built[0])!r}, data_dir={str(tmp_path)!r})\n"
        "b.download_and_prepare(file_format='array_record')\n"
        "source = b.as_data_source()['train']\n"
        "rows = [source[i] for i in range(len(source))]\n"
        "print(json.dumps([[int(r['page_id']), *(r[k].decode() for k in "
        "('title', 'kind', 'text'))] for r in rows]))\n"
        "print('tensorflow' in sys.modules, b.info.full_name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    *_, found, last = done.stdout.strip().splitlines()
    assert last == "False twiki_diffset/20200501_20200701/1.0.0"
    records = [[r[k] for k in ("page_id", "title", "kind", "text")] for r in read_records(built[0])]
    assert sorted(json.loads(found)) == sorted(records)

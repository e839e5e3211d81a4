"""Small stand-ins for what the documentation's commands read, under the names that pages use."""

import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np

from benchmarks import factbook_snapshots
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl, t5x
from ckl_jax.files import read_json, read_jsonl, write_json, write_jsonl
from ckl_jax.models.decoder import DecoderConfig
from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.models.modernbert import ModernBertConfig
from ckl_jax.papers.ckl.data.review import read_reviewable
from ckl_jax.world.statement_templates import TRAINED_TREX
from tests.analysis.helpers import make_demo
from tests.examples.test_examples import SMALL
from tests.helpers import random_params
from tests.llama_tokenizer import train_tokenizer
from tests.papers.mind_the_gap.analysis.dumps import write_gap
from tests.papers.mind_the_gap.data.test_clean import wmt_line
from tests.papers.mind_the_gap.data.test_dated_qa import ROWS
from tests.papers.temporalwiki.analysis import test_text_losses as nouns
from tests.papers.temporalwiki.analysis.temporalwiki_study import INTERVALS, write_study
from tests.parity.ranked import GOLDEN, unpack
from tests.tiny import Tiny
from tests.updates import planted

ANSWERS = ("X", "Y", "Z")
SIZES = {"emb_dim": 32, "num_heads": 2, "head_dim": 16, "mlp_dim": 64, "num_layers": 2}
WIKI, ITEMS = "{}wiki-{}-pages-articles-multistream.xml.bz2", "wikidata-{}-all.json.gz"
_OLD, _NEW = "202108/" + WIKI.format("sim", "20210801"), "202109/" + WIKI.format("sim", "20210901")
# Name on a page, or "page: name" where it is of that page alone -> who makes it, and a part of it;
# "./name": a copy of what the page has made.
NAMES = {
    "docs/ckl.md: DIR": "t5",
    "docs/ckl.md: data/ckl/spiece.model": "t5/spiece.model",
    "docs/benchmark_builder.md: mine": "ckl_world",
    "docs/dynamic_evaluation.md: vocabulary.model": "gap/data/time_stratified.model",
    "docs/staleness.md: posts.jsonl": "few.jsonl",
    "docs/(experiments|kilt).md: data/ckl": "published",
    "docs/gpt2.md: FOLDER": "imported_gpt2",
    "docs/lm_pub_quiz.md: DIR": "real_facts",
    "docs/models.md: bear": "golden/dataset",
    "docs/temporalwiki_evaluation.md: .*_initial/eval": "./runs/temporalwiki_vanilla/eval",
    "docs/world.md: FOLDER": "ckl_world",
    "docs/results/update.md: DIR/2024.jsonl": "news/2025.jsonl",
    "docs/results/update.md: DIR/2025.jsonl": "news/2026.jsonl",
    "docs/results/update.md: BEAR": "golden/dataset",
    # models
    "gpt2|gpt2-large|pythia/step\\d+|MODEL|RUN": "gpt2",
    "Qwen/Qwen3-0.6B": "qwen",
    "LLAMA|llama|P/updates/0001/model|M_vanilla/updates/0001/model": "llama",
    "bert-base-cased": "masked/bert",
    "roberta-base": "masked/roberta",
    "answerdotai/ModernBERT-base": "modernbert",
    "T5|data/t5-large|data/flan-t5-base|path/to/t5": "t5",
    "runs/gpt2|runs/gpt2_arxiv|data/ckl/gpt2": "imported_gpt2",
    "data/ckl/initial|data/flan|runs/t5": "imported_t5",
    "runs/bert": "imported_bert",
    "weights.npz": "haiku/weights.npz",
    # runs
    "runs/temporalwiki_initial/eval|runs/temporalwiki_lora/eval": "nouns",
    "runs/temporalwiki_\\w+": "gpt2_run",
    "runs/(ckl_initial|ckl_vanilla|january|initial)": "t5_vanilla",
    "runs/(ckl_\\w+|february_lora|lora|imported)": "t5_run",
    "runs/demo(-\\d|-seed\\d)?": "demo",
    "runs/(seed|wide|legacy|factbook|w|all)-\\d": "rows",
    "runs/stratified|runs/old|runs/new": "gap/time_stratified",
    "runs/(mind-the-gap|gap-\\d)": "gap",
    "runs/monthly/20210801-20210901/lora": "study/initial",
    "runs/monthly/20210901-20211001/lora": f"study/{INTERVALS[1]}/vanilla",
    "factbook\\d|runs/updates-\\d": "study",
    "LAMA/TREx": "trex",
    "invariantLAMA.csv": "invariant.csv",
    "prompts.txt": "prompts.txt",
    "decisions.json": "decisions.json",
    "U|WIKI|updates": "registry",
    "bear_\\w+|runs/\\w+/bear/BEAR": "golden/results/sum",
    "dumps/(control|stale|dynamic)": "losses/losses/control/d",
    # data
    "BEAR|bear|quiz|mine|runs/trex": "golden/dataset",
    "mine|data/ckl|sim": "ckl_world",
    "DIR|DATA": "real_facts",
    "(.*/)?vocabulary.model|.*spiece.model": "t5/spiece.model",
    "news": "news",
    "dumps": "months",
    "snapshots": "snapshots",
    "factbook": "factbook",
    "(OLD|.*wiki-(20210801|20190901|20160501).*)\\.xml\\.bz2": f"months/{_OLD}",
    "(NEW|.*wiki-(20210901|20230820).*)\\.xml\\.bz2": f"months/{_NEW}",
    "OLD.json.gz|wikidata-20210802-all.json.gz": "months/202108/wikidata-20210801-all.json.gz",
    "NEW.json.gz|wikidata-20210830-all.json.gz": "months/202109/wikidata-20210901-all.json.gz",
    "whole/wikipedia_20210901.jsonl": "whole/wikipedia_20210901.jsonl",
    "pararel/trex": "real_facts/probes/pararel/trex",
    "(wikidata-facts.*)": "real_facts/probes/wikidata-facts-2021-2023-2024.jsonl.gz",
    "news-docs.\\d.en.filtered.gz": "wmt.gz",
    "streaminqa_eval.jsonl.gz": "streamingqa.gz",
    "20220708_qa.jsonl": "realtimeqa.jsonl",
    "X/probes/.*csv|.*lighttuning_changed_500.csv|.*(_|_un)changed.csv": "facts.csv",
    "rest.jsonl|.*/wikipedia_\\d+.jsonl|.*/diffset_\\d+_\\d+.jsonl": "stream/stream.jsonl",
    "ask.jsonl|templama.jsonl": "questions.jsonl",
    "(.*/)?[\\w-]*facts.jsonl": "ckl_world/facts.jsonl",
    "test.json": "templama.json",
    "wiki-.*.jsonl": "snapshot_rows.jsonl",
    "(.*/)?[\\w-]+\\.jsonl\\.gz": "stream/stream.jsonl.gz",
    "(.*/)?[\\w-]+\\.jsonl": "stream/stream.jsonl",
}


class StandIns:
    """Makes each kind once, in `root`, and copies it to the names that pages have for it."""

    def __init__(self, root: Path, tiny: Tiny):
        self.root, self.tiny, self.placed = root, tiny, set()

    def put(self, page: str, name: str, folder: Path) -> None:
        """Makes `name` in `folder`, where it is not there and its kind is known."""
        if not (to := folder / name).exists() and (made := self._like(page, name, folder)):
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if made.is_dir() else shutil.copyfile)(made, to)
            self._number(to)
            self.placed.add(to)

    def _like(self, page: str, name: str, folder: Path) -> Path | None:
        """What `name` is to be a copy of: another of its series, or a kind."""
        series = re.fullmatch(r"((?:runs/|factbook).*\D)\d", name)
        if series and (others := sorted(folder.glob(f"{series[1]}[0-9]"))):
            return others[0]
        for pattern, kind in NAMES.items():
            if any(re.fullmatch(pattern, text) for text in (f"{page}: {name}", name)):
                return folder / kind if kind.startswith("./") else self.made(kind)
        return None

    def made(self, kind: str) -> Path:
        top = kind.partition("/")[0]
        if not (self.root / top).exists():
            getattr(self, top.partition(".")[0])(self.root / top)
        return self.root / kind

    def run(self, line: str, out: Path, **paths) -> None:
        program, *words = (word.format(out=out, **paths) for word in line.split())
        assert {"ckl": ckl, "t5x": t5x}[program].main(words) == 0, line

    def _number(self, path: Path) -> None:
        """Gives a copy of a study the seed in its name."""
        seed = re.fullmatch(r".*\D(\d)", path.name)
        for record in path.glob("*.json") if seed else ():
            if "seed" in (settings := read_json(record)):
                write_json(record, settings | {"seed": int(seed[1])})

    # --- models

    def golden(self, path):
        """As P30 and P36, relations of BEAR's."""
        unpack("lm_pub_quiz.zip", path)
        for file in [*(path / "dataset").iterdir(), *(path / "results" / "sum").iterdir()]:
            text = file.read_text().replace('"P1"', '"P30"').replace('"P2"', '"P36"')
            file.unlink()
            name = file.name.replace("P1", "P30").replace("P2", "P36")
            (file.parent / name).write_text(text)
        names = {code: {"relation_name": code} for code in ("P30", "P36")}
        write_json(path / "dataset" / "relation_info.json", names)

    def masked(self, path):
        unpack("lm_pub_quiz_masked.zip", path)

    def gpt2(self, path):
        self._save(path, "golden/model", GPT2Config(vocab_size=300, max_positions=512, **SIZES))

    def modernbert(self, path):
        config = ModernBertConfig(vocab_size=8, max_positions=128, window=32, **SIZES)
        self._save(path, "masked/bert", config)

    def _save(self, path, like, config):
        """Random parameters beside the tokenizer of another model."""
        like = self.made(like)
        size = read_json(like / "config.json")["vocab_size"]
        weights = shutil.ignore_patterns("*config.json", "*.safetensors")
        shutil.copytree(like, path, ignore=weights)
        shutil.copy(like / "tokenizer_config.json", path)
        config = type(config)(**{**vars(config), "vocab_size": size})
        save_hf(path, random_params(config), config)

    def llama(self, path, **fields):
        train_tokenizer(path)
        config = DecoderConfig(vocab_size=300, max_positions=512, **SIZES, **fields)
        save_hf(path, random_params(config), config)

    def qwen(self, path):
        self.llama(path, family="qwen3", qk_norm="head")

    def t5(self, path):
        save_hf(path, random_params(SMALL), SMALL)
        vocabulary = self.tiny.root / "world" / "prepared" / "vocabulary.model"
        shutil.copy(vocabulary, path / "spiece.model")

    def imported_gpt2(self, path):
        self.run("ckl import-hf --model {model} --out {out}", path, model=self.made("gpt2"))

    def imported_t5(self, path):
        self.run("ckl import-hf --model {model} --out {out}", path, model=self.made("t5"))

    def imported_bert(self, path):
        self.run("ckl import-hf --model {model} --out {out}", path, model=self.made("masked/bert"))

    def haiku(self, path):
        path.mkdir()
        with np.load(GOLDEN / "haiku_xl.npz") as arrays:
            found = {n[7:]: arrays[n] for n in arrays.files if n.startswith("params/")}
        np.savez(path / "weights.npz", **found)

    # --- runs

    def t5_run(self, path):
        keep = {"CHECKPOINTS_KEPT": 2, "CHECKPOINT_PERIOD": 1}
        argv = self.tiny.argv("lora", path, TRAIN_STEPS=2, EPOCHS=None, **keep)
        assert t5x.main(["train", *argv]) == 0

    def t5_vanilla(self, path):
        argv = self.tiny.argv("vanilla", path, TRAIN_STEPS=2, EPOCHS=None)
        assert t5x.main(["train", *argv]) == 0

    def gpt2_run(self, path):
        line = "t5x train --gin_file=temporalwiki_lora.gin --gin_file=temporalwiki_tiny.gin "
        line += "--gin.MODEL_DIR='{out}' --gin.DATA_DIR='{root}/wiki' --gin.TRAIN_STEPS=2 "
        line += "--gin.INITIAL_DIR='{root}/wiki_initial' --gin.EPOCHS=None"
        self.run(line, path, root=self.root)

    def demo(self, path):
        self.run("ckl demo --size tiny --out {out}", path)

    def gap(self, path):
        line = "ckl mind-the-gap --size tiny --past-documents=2 --measure=documents --out {out} "
        line += "--gin.EPOCHS=None --gin.TRAIN_STEPS=9 --rates=0.1 --masks=bias"
        self.run(line, path)

    def rows(self, path):
        make_demo(path, ("initial", "vanilla", "lora"), epochs=1)

    def study(self, path):
        write_study(path, ("vanilla",), 2)

    def losses(self, path):
        write_gap(path, 0)

    def nouns(self, path):
        nouns.write(path.parent, path.name)

    def registry(self, path):
        line = "ckl update --model {model} --documents {news}/2025.jsonl --out {out} --epochs=1"
        line += " --max-items=8 --ship-if=new<=1"
        self.run(line, path, model=self.made("llama"), news=self.made("news"))

    # --- data

    def news(self, path):
        found = planted.documents(planted.facts(9))
        years = {"2024": "2025-11", "2025": "2026-01"}
        rows = [{"id": d.id, "date": years[d.date[:4]] + d.date[7:], "text": d.text} for d in found]
        for year in ("2025", "2026"):
            write_jsonl(path / f"{year}.jsonl", (r for r in rows if r["date"][:4] == year))

    def snapshot_rows(self, path):
        rows = read_jsonl(self.made("news/2025.jsonl"))
        write_jsonl(path, ({"snapshot": r.pop("date"), **r} for r in rows))

    def stream(self, path):
        path.mkdir()
        for name in ("stream.jsonl", "stream.jsonl.gz"):
            self.run("ckl data stream --size tiny --out {out}", path / name)

    def ckl_world(self, path):
        self.run("ckl world --size tiny --out {out}", path)

    def published(self, path):
        shutil.copytree(self.made("ckl_world"), path)
        shutil.copytree(self.made("imported_t5"), path / "initial")
        self.run("ckl data kilt --size tiny --out {out}", path / "kilt")

    def trex(self, path):
        rows = [{"sub_label": f"Sub {i}", "obj_label": "Rome"} for i in range(9)]
        write_jsonl(path / "P19.jsonl", rows)

    def invariant(self, path):
        path.write_text("id,input,output,relation\n1,A is of <extra_id_0> .,B,P19\n")

    def prompts(self, path):
        path.write_text("The capital of France is\n")

    def questions(self, path):
        self.run("ckl data questions --size tiny --out {out}", path)

    def templama(self, path):
        write_jsonl(path, [ROWS["templama"]])

    def facts(self, path):
        path.write_text("subject,relation,object\n" + "Oslo,mayor,Ann\n" * 9)

    def months(self, path):
        """Dumps of three months, each in a folder of its own."""
        self.run("ckl data dumps --size tiny --months 3 --out {out}", path)
        for old, new in zip(("05", "06", "07"), ("08", "09", "10"), strict=True):
            (path / f"2021{new}").mkdir()
            for file in path.glob(f"*-2020{old}01*"):
                name = file.name.replace(f"2020{old}01", f"2021{new}01")
                file.rename(path / f"2021{new}" / name)

    def diffset(self, path):
        line = "ckl data diffsets --old {old} --new {new} --workers 1 --deletions --out {out}"
        dumps = self.made("months")
        self.run(line, path, old=dumps / _OLD, new=dumps / _NEW)

    def whole(self, path):
        line = "ckl data diffsets --new {new} --workers 1 --out {out}"
        self.run(line, path, new=self.made("months") / _NEW)

    def few(self, path):
        write_jsonl(path, [*read_jsonl(self.made("stream/stream.jsonl"))][::20])

    def wmt(self, path):
        found = [*read_jsonl(self.made("stream/stream.jsonl"))][::4]
        shown = [(d["date"].replace("-", ""), d["text"]) for d in found]
        lines = [wmt_line(date, text, text.replace("\n", " "))[0] for date, text in shown]
        path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))

    def streamingqa(self, path):
        _write_gz(path, [ROWS["streamingqa"]])

    def realtimeqa(self, path):
        write_jsonl(path, [ROWS["realtimeqa"]])

    def decisions(self, path):
        probes, line = self.root / "reviewed", "ckl data benchmark --facts {world}/facts.jsonl "
        line += "--templates {world}/relations.jsonl --dates 2020-04-30 2021-04-30 --documents "
        line += "{world}/documents_d0.jsonl {world}/documents_d1.jsonl --out {out}"
        self.run(line, probes, world=self.made("ckl_world"))
        digest = read_reviewable(probes).digest
        write_json(path, {"format": "ckl-review-1", "benchmark": digest, "decisions": {}})

    def real_facts(self, path):
        """Files in the forms of docs/real_facts.md."""
        shutil.copytree(self.made("golden/dataset"), path)  # a page has one name for both
        probes, factbook = path / "probes", path / "factbook"
        for prop in TRAINED_TREX:
            rows = [{"sub_label": f"Sub {i}", "obj_label": ANSWERS[i % 3]} for i in range(40)]
            write_jsonl(probes / "pararel" / "trex" / f"{prop}.jsonl", rows)
            patterns = [{"pattern": f"[X] is {word} [Y] ."} for word in ("of", "in", "by")]
            write_jsonl(probes / "pararel" / "patterns" / f"{prop}.jsonl", patterns)
        row = {"relation": "P6", "slot": "current"}
        dates = "2021-12-30", "2023-12-30", "2024-03"
        rows = [
            {
                **row,
                "subject_id": f"Q{i}",
                "subject": f"City {i}",
                "objects": {
                    d: [[f"Q{i}{j}", f"Ann {i}{j}"]] for j, d in enumerate(dates) if i % 3 or j
                },
            }
            for i in range(90)
        ]
        _write_gz(probes / "wikidata-facts-2021-2023-2024.jsonl.gz", rows)
        days = "2003-12-15", "2017-12-18", "2020-11-27", "2022-01-06", "2023-01-05", "2026-01-22"
        rows = [
            {
                "subject_code": f"{i:02}",
                "subject": f"Land {i}",
                "relation": relation,
                "object": f"{relation} {word} {i}",
                "aliases": [],
                "valid_from_snapshot": days[a],
                "valid_to_snapshot": days[b],
            }
            for i in range(60)
            for relation, a, b, word in (
                ("capital", 0, 5, "Town"),
                ("head_of_government", 0, 1, "Ann"),
                ("head_of_government", 2, 5, "Ben"),
                ("us_ambassador", 2, 5, "Cy"),
                ("chief_of_state", 0, 3, "Di"),
                ("chief_of_state", 4, 5, "Ed"),
                ("top_export_partner", 0, 5, "Ex"),
            )
        ]
        _write_gz(factbook / "factbook-facts-2003-2026.jsonl.gz", rows)
        texts = [
            {
                "code": f"{i:02}",
                "country": f"Land {i}",
                "field": "Background",
                "text": f"Land {i} has rivers and hills and very many lakes of salt.",
                "snapshots": [days[1]],
            }
            for i in range(60)
        ]
        _write_gz(factbook / "factbook-editions-2003-2017.jsonl.gz", texts)
        later = [
            t
            | {
                "text": t["text"].replace("rivers", "roads"),
                "snapshots": ["2015-11-29", *days[2:]],
            }
            for t in texts
        ]
        _write_gz(factbook / "factbook-2015-2026.jsonl.gz", later)

    def factbook(self, path):
        for name in ("documents", "facts"):
            rows = getattr(factbook_snapshots, name)(self.made("real_facts"))
            write_jsonl(path / f"{name}.jsonl", rows)


def _write_gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)

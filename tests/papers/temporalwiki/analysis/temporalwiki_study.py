"""A folder of `ckl temporalwiki` without a model: facts cost what the paper printed."""

import math

from ckl_jax.files import write_json, write_jsonl
from ckl_jax.papers.temporalwiki.analysis.published import MONTHS, TABLE_3

DATES = ("20210801", "20210901", "20211001", "20211101", "20211201")
INTERVALS = tuple(f"{old}-{new}" for old, new in zip(DATES, DATES[1:], strict=False))
METHODS = {"full": "Full", "vanilla": "Diff", "lora": "LoRA", "k_adapter_k2": "K-Adapter"}
AWAY = 1.1  # how much worse changed facts get for each interval that lies between


def fact_rows(interval, name, perplexity, kinds=("",)):
    """Two facts of each kind of 3 and 5 tokens, one dearer than the other; the sum is as wanted."""
    rows = []
    for kind in kinds:
        for tokens, more in ((3, 0.5), (5, -0.5)):
            rows.append(
                {
                    "run": "r",
                    "method": "m",
                    "phase": 1,
                    "epoch": 1,
                    "step": 10,
                    "probe": f"{interval}_{name}",
                    "item": f"{kind} {tokens}",
                    "interval": interval,
                    "class": name,
                    "kind": kind,
                    "relation": "r",
                    "input": "s r",
                    "answers": ["o"],
                    "old_answers": [],
                    "nll": tokens * math.log(perplexity) + more,
                    "tokens": tokens,
                    "object_nll": 1.0,
                    "object_tokens": 1,
                    "truncated": 0,
                }
            )
    return rows


def published(label, at, of):
    """Un and C of a model after interval `at` (None: Initial) on the facts of interval `of`."""
    un, changed, _ = map(float, TABLE_3[label][MONTHS[of]])
    return un, changed * AWAY ** abs(of - (of if at is None else at))


def write_run(folder, label, at, intervals=range(4)):
    rows = []
    for of in intervals:
        un, changed = published(label, at, of)
        rows += fact_rows(INTERVALS[of], "unchanged", un, ("unchanged",))
        rows += fact_rows(INTERVALS[of], "changed", changed, ("new", "updated"))
    write_jsonl(folder / "probes" / "rows_000010.jsonl", rows)
    write_json(
        folder / "summary.json",
        {
            "run": folder.name,
            "steps": 10,
            "trainable_parameters": 100,
            "total_parameters": 200,
            "train_cpu_seconds": 2.5,
            "matmul_flops_per_step": 3 * 10**11,
        },
    )
    return folder


def write_study(root, methods=tuple(METHODS), count=4):
    """Writes a study of the first `count` intervals."""
    snapshots = [f"{date}: enwiki-{date}.xml.bz2" for date in DATES[: count + 1]]
    write_json(root / "temporalwiki.json", {"snapshots": snapshots, "seed": 0})
    write_run(root / "initial", "Initial", None, range(count))
    for method in methods:
        for i in range(count):
            write_run(root / INTERVALS[i] / method, METHODS[method], i, range(count))
    for i in INTERVALS[:count]:
        write_json(root / "data" / i / "diffset" / "manifest.json", {"articles": 9, "words": 99})
        sevens = {
            "facts": 4,
            "relations": 2,
            "max_repetition": 3,
            "subjects": 4,
            "objects": 3,
            "by_relation": {"mayor": 3, "club": 1},
        }
        twos = {"initial": 30, "aligned": 20, "final": 4}
        names = ("unchanged", "changed", "deleted")
        write_json(
            root / "data" / i / "probes" / "manifest.json",
            {
                "table_2": dict.fromkeys(names, twos),
                "table_7": dict.fromkeys(names, sevens),
            },
        )
    return root

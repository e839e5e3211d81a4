"""Ranking by a GPT-2 or BERT of random weights: ours against lm-pub-quiz, a thread each, one run.

    pip install lm-pub-quiz==0.3.3 requests torch transformers
    python -m benchmarks.ranking --dataset BEAR --tokenizer GPT2_FOLDER
    python -m benchmarks.ranking --dataset BEAR --kind bert

The tokenizer's folder has encoder.json and vocab.bpe (or vocab.json and merges.txt); BERT's is
trained on the dataset's statements. All templates
of a sample of instances are scored by both; the scores are compared, option by option. With fewer
instances fewer prefixes are shared, so a sample favours lm-pub-quiz.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from ckl_jax import files

RESULTS = Path(__file__).parent / "results"
SHAPES = {  # width, layers, heads
    "small": (768, 12, 12),  # GPT-2's 124M parameters, BERT-base's 110M
    "mini": (256, 4, 4),
}


def sample(dataset, relations, instances):
    """{relation: rows}, evenly spread over the dataset."""
    codes = list(dataset.relations)
    step = max(1, len(codes) // relations)
    return {
        code: np.linspace(0, len(dataset[code].instances) - 1, instances, dtype=int).tolist()
        for code in codes[::step][:relations]
    }


def theirs(folder, data, rows, name):
    """{relation: scores}, CPU seconds: lm-pub-quiz."""
    import lm_pub_quiz
    import torch
    import transformers

    torch.set_num_threads(1)
    if (folder / "tokenizer.json").exists():
        tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
        model, kind = transformers.BertForMaskedLM.from_pretrained(folder), "Masked"
    else:
        tokenizer = transformers.GPT2TokenizerFast(
            vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
        )
        model, kind = transformers.GPT2LMHeadModel.from_pretrained(folder), "Causal"
    evaluator = getattr(lm_pub_quiz, f"{kind}LMEvaluator").from_model(
        model.eval(), tokenizer=tokenizer, model_type=f"{kind[0]}LM", model_name=name, device="cpu"
    )
    whole = lm_pub_quiz.Dataset.from_path(data)
    scores, start = {}, time.process_time()
    for code, some in rows.items():
        relation = whole[code].filter_subset(some, keep_answer_space=True)
        table = evaluator.evaluate_relation(relation, batch_size=32).instance_table
        scores[code] = np.array(table["pll_scores"].tolist())
    return scores, time.process_time() - start


def ours(folder, dataset, name):
    """{relation: scores}, CPU seconds with and without compilation, tokens seen."""
    from ckl_jax.jobs.ranking import Settings, open_scorer
    from ckl_jax.probes.ranking import Evaluator

    scorer = open_scorer(folder, Settings())
    evaluator = Evaluator(scorer, name)
    start = time.process_time()
    first = next(iter(dataset))
    evaluator.evaluate_relation(first.subsample(1))
    compiled, scorer.tokens_seen = time.process_time(), 0
    results = evaluator.evaluate_dataset(dataset)
    end = time.process_time()
    scores = {result.code: result.scores for result in results}
    return scores, end - compiled, end - start, scorer.tokens_seen


def make_bert(folder, dataset, shape):
    """A random BERT in Hugging Face's form, with pieces of the dataset's statements."""
    import tokenizers
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    from ckl_jax.data.statements import fill

    texts = (
        fill(template, instance.sub_label, relation.answer_labels[instance.answer_idx]).text
        for relation in dataset
        for template in relation.templates
        for instance in relation.instances
    )
    pieces = tokenizers.BertWordPieceTokenizer(lowercase=False)
    pieces.train_from_iterator(texts, vocab_size=28996, show_progress=False)
    tokenizer = BertTokenizerFast(tokenizer_object=pieces._tokenizer, do_lower_case=False)
    tokenizer.save_pretrained(folder)
    width, layers, heads = SHAPES[shape]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=28996, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)


def make_gpt2(folder, tokenizer, shape):
    """A random GPT-2 with real pieces, in Hugging Face's form."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    for ours_, other in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        source = next(p for p in (tokenizer / ours_, tokenizer / other) if p.exists())
        (folder / ours_).write_bytes(source.read_bytes())
    torch.manual_seed(0)
    width, layers, heads = SHAPES[shape]
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    GPT2LMHeadModel(config).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--kind", choices=("gpt2", "bert"), default="gpt2")
    parser.add_argument("--tokenizer", type=Path, help="GPT-2's")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--relations", type=int, default=12)
    parser.add_argument("--instances", type=int, default=2)
    args = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from ckl_jax.data.relational import Dataset

    dataset = Dataset.from_path(args.dataset)
    rows = sample(dataset, args.relations, args.instances)
    part = dataset.filter_subset(rows, keep_answer_space=True)
    statements = sum(len(r.instances) * len(r.answer_ids) * len(r.templates) for r in part)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.kind == "bert":
            make_bert(folder, dataset, args.shape)
        else:
            make_gpt2(folder, args.tokenizer, args.shape)
        mine, seconds, whole, tokens = ours(folder, part, args.shape)
        other, their_seconds = theirs(folder, args.dataset, rows, args.shape)
    differences = [np.abs(mine[c] - other[c]).max() for c in rows]
    flips = sum(int((mine[c].argmax(1) != other[c].argmax(1)).sum()) for c in rows)
    record = {
        "kind": args.kind, "shape": args.shape, "relations": len(rows), "instances": args.instances,
        "statements": statements, "tokens_seen": tokens,
        "ours": {"cpu_seconds": seconds, "with_compilation": whole},
        "lm_pub_quiz": {"cpu_seconds": their_seconds},
        "ratio": their_seconds / seconds, "ratio_with_compilation": their_seconds / whole,
        "largest_difference": float(max(differences)), "argmax_changes": flips,
    }  # fmt: skip
    files.write_json(RESULTS / f"ranking_{args.kind}_{args.shape}.json", record)
    print(
        f"{statements} statements: ours {seconds:.1f} CPU s ({statements / seconds:.0f} a second), "
        f"lm-pub-quiz {their_seconds:.1f} ({statements / their_seconds:.0f}); "
        f"{record['ratio']:.1f} times; largest difference {max(differences):.1e}, "
        f"{flips} other argmaxes"
    )


if __name__ == "__main__":
    main()

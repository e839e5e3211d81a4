"""Ranking by models of random weights: ours against lm-pub-quiz, a thread each, in one run.

    pip install lm-pub-quiz==0.3.3 requests torch transformers
    python -m benchmarks.ranking --dataset BEAR --tokenizer GPT2_FOLDER
    python -m benchmarks.ranking --dataset BEAR --kind bert
    python -m benchmarks.ranking --dataset BEAR --kind llama --shape tiny
    python -m benchmarks.ranking --dataset BEAR --shape tiny --relations 60 --instances 150

The tokenizer's folder has encoder.json and vocab.bpe (or vocab.json and merges.txt); without one,
for Llama and for BERT, it is trained on the dataset's statements. Some relations are scored, all
templates and options of each: by lm-pub-quiz for some instances, evenly spread, whose cost does not
depend on the others; by ours for all, because options and instances share what begins alike (BERT:
for the same instances). lm-pub-quiz's seconds for all follow from its seconds a statement, relation
by relation. The scores of the common instances are compared, option by option. The two take turns,
relation by relation, so that both meet the same machine. The last command compares every statement
of BEAR.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import measure
from ckl_jax import files

SHAPES = {  # width, layers, heads
    "small": (768, 12, 12),  # GPT-2's 124M parameters, BERT-base's 110M
    "mini": (256, 4, 4),
    "tiny": (32, 2, 2),
}


def spread(items, count):
    """`count` of the items at most, evenly."""
    places = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).astype(int))
    return [items[i] for i in places]


def theirs(folder, data, name, kind):
    """{relation: rows} -> scores [rows x templates, options]: lm-pub-quiz."""
    import lm_pub_quiz
    import torch
    import transformers

    torch.set_num_threads(1)
    if kind == "bert":
        tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
        model, kind = transformers.BertForMaskedLM.from_pretrained(folder), "Masked"
    elif kind == "llama":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, kind = transformers.LlamaForCausalLM.from_pretrained(folder), "Causal"
    else:
        tokenizer = transformers.GPT2TokenizerFast(
            vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
        )
        model, kind = transformers.GPT2LMHeadModel.from_pretrained(folder), "Causal"
    evaluator = getattr(lm_pub_quiz, f"{kind}LMEvaluator").from_model(
        model.eval(), tokenizer=tokenizer, model_type=f"{kind[0]}LM", model_name=name, device="cpu"
    )
    whole = lm_pub_quiz.Dataset.from_path(data)

    def score(code, rows):
        relation = whole[code].filter_subset(rows, keep_answer_space=True)
        table = evaluator.evaluate_relation(relation, batch_size=32).instance_table
        return np.array(table["pll_scores"].tolist())

    return score


def timed(function, *args):
    """CPU seconds, and what the function returns."""
    start = time.process_time()
    found = function(*args)
    return time.process_time() - start, found


def compare(relation, rows, evaluator, score, whole):
    """Of one relation: what each scored, seconds, tokens, and how the common scores differ."""
    mine = relation if whole else relation.take(rows, keep_answer_space=True)
    scorer = evaluator.scorer
    scorer.tokens_seen = 0
    seconds, found = timed(evaluator.evaluate_relation, mine)
    their_seconds, other = timed(score, relation.code, rows)
    each = len(relation.templates)
    common = rows if whole else range(len(rows))
    scores = found.scores.reshape(-1, each, len(relation.answer_ids))[list(common)]
    other = other.reshape(scores.shape)
    statements, sample = (
        n * each * len(relation.answer_ids) for n in (len(mine.instances), len(rows))
    )
    return {
        "relation": relation.code,
        "statements": statements,
        "sample": sample,
        "tokens_seen": scorer.tokens_seen,
        "cpu_seconds": seconds,
        "their_cpu_seconds": their_seconds,
        "rows": len(rows) * each,
        "largest_difference": float(np.abs(scores - other).max()),
        "argmax_changes": int((scores.argmax(-1) != other.argmax(-1)).sum()),
    }


def tokens_of(scorer, relation, instances=20):
    """Tokens of all statements of a relation, BOS included, by some of its instances."""
    from ckl_jax.data.facts.statements import statements

    rows = spread(range(len(relation.instances)), instances)
    part = relation.take(rows, keep_answer_space=True)
    whole = [s for t in range(len(relation.templates)) for s in statements(part, t)]
    tokens = sum(1 + len(ids) for ids in scorer.encode(whole))
    return tokens * len(relation.instances) / len(rows)


def texts(dataset):
    """The right statements, to train a tokenizer on."""
    from ckl_jax.data.facts.statements import fill

    for relation in dataset:
        for template in relation.templates:
            for instance in relation.instances:
                answer = relation.answer_labels[instance.answer_idx]
                yield fill(template, instance.sub_label, answer).text


def make_bert(folder, dataset, shape, pieces):
    """A random BERT in Hugging Face's form, with pieces of the dataset's statements."""
    import tokenizers
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    trained = tokenizers.BertWordPieceTokenizer(lowercase=False)
    trained.train_from_iterator(texts(dataset), vocab_size=pieces, show_progress=False)
    pieces_of = tokenizers.Tokenizer.from_str(trained.to_str())
    tokenizer = BertTokenizerFast(tokenizer_object=pieces_of, do_lower_case=False)
    tokenizer.save_pretrained(folder)
    width, layers, heads = SHAPES[shape]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=pieces,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        initializer_range=_spread_of(width),
    )
    BertForMaskedLM(config).save_pretrained(folder)


def _spread_of(width):
    """Of the random weights: the smallest models would else hardly tell options apart."""
    return 0.02 if width > 100 else 0.2


def make_gpt2(folder, dataset, shape, tokenizer, pieces):
    """A random GPT-2 in Hugging Face's form, with real pieces or the dataset's own."""
    import tokenizers
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    if tokenizer is None:
        trained = tokenizers.ByteLevelBPETokenizer()
        trained.train_from_iterator(
            texts(dataset), vocab_size=pieces, special_tokens=["<|endoftext|>"], show_progress=False
        )
        trained.save_model(str(folder))
        size = trained.get_vocab_size()
    else:
        for ours_, other in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
            source = next(p for p in (tokenizer / ours_, tokenizer / other) if p.exists())
            (folder / ours_).write_bytes(source.read_bytes())
        size = len(files.read_json(folder / "vocab.json"))
    torch.manual_seed(0)
    width, layers, heads = SHAPES[shape]
    end = files.read_json(folder / "vocab.json")["<|endoftext|>"]
    config = GPT2Config(
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        vocab_size=size,
        bos_token_id=end,
        eos_token_id=end,
        initializer_range=_spread_of(width),
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


def make_llama(folder, dataset, shape, pieces):
    """A random Llama in Hugging Face's form, with byte-level pieces of the dataset's statements."""
    import tokenizers
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    trained.train_from_iterator(
        texts(dataset), vocab_size=pieces, special_tokens=special, show_progress=False
    )
    tokenizer = tokenizers.Tokenizer.from_str(trained.to_str())
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{special[0]} $A", special_tokens=[(special[0], 0)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=special[0],
        eos_token=special[1],
        add_bos_token=True,
    ).save_pretrained(folder)
    width, layers, heads = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=512,
        vocab_size=trained.get_vocab_size(),
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=_spread_of(width),
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def summary(args, found, tokens):
    """The record of a run."""
    total = {
        key: sum(row[key] for row in found)
        for key in ("statements", "sample", "tokens_seen", "cpu_seconds", "rows", "argmax_changes")
    }
    their_seconds = sum(r["their_cpu_seconds"] * r["statements"] / r["sample"] for r in found)
    return {
        "kind": args.kind,
        "shape": args.shape,
        "pieces": args.tokenizer.name if args.tokenizer else "trained",
        "relations": len(found),
        **total,
        "tokens_of_statements": round(tokens),
        "their_cpu_seconds_of_sample": sum(r["their_cpu_seconds"] for r in found),
        "their_cpu_seconds_for_all": their_seconds,
        "ratio": their_seconds / total["cpu_seconds"],
        "largest_difference": max(r["largest_difference"] for r in found),
        "by_relation": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--kind", choices=("gpt2", "llama", "bert"), default="gpt2")
    parser.add_argument("--tokenizer", type=Path, help="GPT-2's; none: one is trained")
    parser.add_argument(
        "--pieces",
        type=int,
        help="of a tokenizer that is trained (4,000, BERT 28,996)",
    )
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--relations", type=int, default=10)
    parser.add_argument("--instances", type=int, default=4, help="of a relation, by lm-pub-quiz")
    args = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    measure.use_cores(1)
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.papers.lm_pub_quiz.opening import open_scorer
    from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator

    dataset = Dataset.from_path(args.dataset)
    found, tokens = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.kind == "bert":
            make_bert(folder, dataset, args.shape, args.pieces or 28996)
        elif args.kind == "llama":
            make_llama(folder, dataset, args.shape, args.pieces or 4000)
        else:
            make_gpt2(folder, dataset, args.shape, args.tokenizer, args.pieces or 4000)
        evaluator = Evaluator(open_scorer(folder), args.shape)
        score = theirs(folder, args.dataset, args.shape, args.kind)
        for number, relation in enumerate(spread(list(dataset), args.relations)):
            if number == 0:
                compiling, _ = timed(evaluator.evaluate_relation, relation.subsample(1))
            rows = spread(range(len(relation.instances)), args.instances)
            found.append(compare(relation, rows, evaluator, score, args.kind != "bert"))
            if args.kind != "bert":
                tokens += tokens_of(evaluator.scorer, relation)
            print(found[-1], flush=True)
    record = {**summary(args, found, tokens), "cpu_seconds_of_compilation": compiling}
    measure.save(f"ranking_{args.kind}_{args.shape}", {**record, "machine": measure.machine(1)})
    counted = f" of {tokens:,.0f}" if tokens else ""
    print(
        f"{record['statements']:,} statements of {len(found)} relations: ours "
        f"{record['cpu_seconds']:.1f} CPU s ({record['statements'] / record['cpu_seconds']:.0f} a "
        f"second; {record['tokens_seen']:,}{counted} tokens), lm-pub-quiz "
        f"{record['their_cpu_seconds_for_all']:.0f} by {record['sample']:,} of them "
        f"({record['statements'] / record['their_cpu_seconds_for_all']:.0f} a second); "
        f"{record['ratio']:.1f} times; largest difference {record['largest_difference']:.1e}, "
        f"{record['argmax_changes']} other best options in {record['rows']:,} rows"
    )


if __name__ == "__main__":
    main()

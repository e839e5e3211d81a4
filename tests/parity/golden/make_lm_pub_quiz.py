"""Makes `lm_pub_quiz.zip`: a random GPT-2, a small dataset, and lm-pub-quiz's scores of it.

    pip install lm-pub-quiz==0.3.3 requests torch transformers tokenizers
    python make_lm_pub_quiz.py

The dataset is written here; the tokenizer is trained on it. Scores are with and without BOS,
summed, mean, by token, and conditional on what stands before the answer.
"""

import json
import os
import pathlib
import tempfile
import zipfile

import lm_pub_quiz
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATES = {
    "P1": ["The capital of [X] is [Y].", "[Y] is where [X] is ruled from, [Y]!", "In [Y]: [X]"],
    "P2": ["[X] speaks [Y].", "[Y] is spoken by [X]."],
}
FACTS = {
    "P1": [
        ("France", "Paris"),
        ("the Land", "New Moon-on-Sea"),
        ("Österreich", "Wien"),
        ("007", "x"),
        ("iOS", "San José"),
    ],
    "P2": [("Ann", "French"), ("Bob", "Low German"), ("Eve", "French"), ("Zoé", "Low German")],
}
RUNS = {  # name -> (reduction, conditional score, BOS)
    "sum": ("sum", False, True),
    "mean": ("mean", False, True),
    "raw": (None, False, True),
    "conditional": ("sum", True, True),
    "no_bos": ("sum", False, False),
}


def write_dataset(folder):
    folder.mkdir()
    metadata = {code: {"templates": t, "domains": [code]} for code, t in TEMPLATES.items()}
    (folder / "metadata_relations.json").write_text(json.dumps(metadata))
    for code, facts in FACTS.items():
        labels = list(dict.fromkeys(answer for _, answer in facts))
        lines = [
            {
                "sub_id": f"{code}s{i}",
                "sub_label": subject,
                "obj_id": f"o{labels.index(answer)}",
                "obj_label": answer,
            }
            for i, (subject, answer) in enumerate(facts)
        ]
        lines = [json.dumps(line) + "\n" for line in lines]
        (folder / f"{code}.jsonl").write_text("".join(lines))


def make_model(folder):
    texts = [t for some in TEMPLATES.values() for t in some]
    texts += [label for some in FACTS.values() for fact in some for label in fact]
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=300, special_tokens=["<|endoftext|>"])
    folder.mkdir()
    bpe.save_model(str(folder))
    tokenizer = transformers.GPT2TokenizerFast(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
    )
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.3,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


class WithoutBos(transformers.GPT2TokenizerFast):
    """Never adds BOS: the library switches it on whatever it is told, and transformers 5 obeys."""

    add_bos_token = property(lambda self: False, lambda self, value: None)


def without_bos(folder):
    return WithoutBos(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))


def pack(root, path):
    """Puts a folder into an archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(root))


def main():
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # so that results name no folder of this machine
        root = pathlib.Path()
        write_dataset(root / "dataset")
        model, tokenizer = make_model(root / "model")
        for run, (reduction, conditional, bos) in RUNS.items():
            evaluator = lm_pub_quiz.CausalLMEvaluator.from_model(
                model,
                tokenizer=tokenizer if bos else without_bos(root / "model"),
                model_type="CLM",
                model_name="golden",
                device="cpu",
                conditional_score=conditional,
                ensure_bos_token_added=bos,
            )
            dataset = lm_pub_quiz.Dataset.from_path(root / "dataset")
            out = root / "results" / run
            out.mkdir(parents=True)
            evaluator.evaluate_dataset(dataset, reduction=reduction, save_path=out)
            del dataset
        versions = {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}
        versions["lm_pub_quiz"] = lm_pub_quiz.__about__.__version__
        (root / "provenance.json").write_text(json.dumps(versions, indent=2))
        pack(root, HERE / "lm_pub_quiz.zip")


if __name__ == "__main__":
    main()

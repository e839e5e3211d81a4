"""Asks the model of an update through transformers: does it answer as verdict and ledger say?

    python -m tests.parity.update_answers updates/updates/0002

Each candidate's sentence is scored in float32, after a BOS where the family has one. A T5 reads the
sentence with a sentinel for the candidate, which is scored with the sentinel behind it. Its token
ids are this project's: transformers encodes what follows a sentinel as if after a space, which T5
was not trained on (docs/fidelity.md).
"""

import json
import sys
from pathlib import Path

_NEAR = 1e-4  # nats: answers that are nearer than this are one


def answers(folder: Path, bos: int | None) -> dict[str, tuple[int, float]]:
    """{item id: (place of the best candidate, how far it is ahead in nats)}.

    Args:
      folder: of the update.
      bos: the token before each sentence; None is none.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder / "model")
    kind = "Seq2SeqLM" if config.is_encoder_decoder else "CausalLM"
    cls = getattr(transformers, f"AutoModelFor{kind}")
    model = cls.from_pretrained(folder / "model").float().eval()
    if config.is_encoder_decoder:
        from ckl_jax.data.text.vocabularies import Vocabulary

        tokenizer = Vocabulary(folder / "model" / "spiece.model", 100)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    found = {}
    for line in (folder / "items.jsonl").read_text().splitlines():
        item = json.loads(line)
        around = item["text"][: item["start"]], item["text"][item["end"] :]
        score = _of_t5 if config.is_encoder_decoder else _of_decoder
        with torch.no_grad():
            scores = score(model, tokenizer, around, item["candidates"], bos)
        best, second = sorted(scores, reverse=True)[:2]
        found[item["id"]] = scores.index(best), best - second
    return found


def _of_decoder(model, tokenizer, around, candidates, bos) -> list[float]:
    import torch

    texts = [candidate.join(around) for candidate in candidates]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    rows = [torch.tensor([bos] * (bos is not None) + i) for i in ids]
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # causal: no mask is needed
    log_probs = model(batch).logits.log_softmax(-1)
    return [
        found[: len(row) - 1].gather(1, row[1:, None]).sum().item()
        for found, row in zip(log_probs, rows, strict=True)
    ]


def _of_t5(model, tokenizer, around, candidates, _) -> list[float]:
    import torch

    source = torch.tensor([[*tokenizer.encode("<extra_id_0>".join(around)), tokenizer.eos_id]])
    targets = [f"<extra_id_0> {candidate} <extra_id_1>" for candidate in candidates]
    rows = list(map(torch.tensor, tokenizer.encode_many(targets)))
    labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    log_probs = model(input_ids=source.expand(len(rows), -1), labels=labels).logits.log_softmax(-1)
    return [
        found[1 : len(row)].gather(1, row[1:, None]).sum().item()
        for found, row in zip(log_probs, rows, strict=True)
    ]


def agreement(folder: Path, bos: int | None) -> tuple[int, int, int]:
    """(items on which both agree, items, items that are ties within rounding)."""
    said = json.loads((folder / "after.json").read_text())["answers"]
    found = {k: v for k, v in answers(folder, bos).items() if k in said}
    same = sum(said[k] == place for k, (place, _) in found.items())
    return same, len(found), sum(lead < _NEAR for _, lead in found.values())


def main() -> None:
    folder = Path(sys.argv[1])
    bos = json.loads((folder / "model" / "config.json").read_text()).get("bos_token_id")
    same, count, ties = agreement(folder, bos)
    print(f"{same} of {count} answers agree; {ties} are ties")


if __name__ == "__main__":
    main()

"""Asks the model of an update through transformers: does it answer as verdict and ledger say?

    python -m tests.parity.update_answers updates/updates/0002

Each candidate's sentence is scored in float32, after a BOS where the family has one.
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

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").float().eval()
    found = {}
    for line in (folder / "items.jsonl").read_text().splitlines():
        item = json.loads(line)
        around = item["text"][: item["start"]], item["text"][item["end"] :]
        texts = [candidate.join(around) for candidate in item["candidates"]]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        rows = [torch.tensor([bos] * (bos is not None) + i) for i in ids]
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # causal: no mask is needed
        with torch.no_grad():
            log_probs = model(batch).logits.log_softmax(-1)
        scores = [
            found[: len(row) - 1].gather(1, row[1:, None]).sum().item()
            for found, row in zip(log_probs, rows, strict=True)
        ]
        best, second = sorted(scores, reverse=True)[:2]
        found[item["id"]] = scores.index(best), best - second
    return found


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

"""Makes the golden values that come from transformers 4.12.3.

    python make_hf.py --library DIR [--library DIR2 ...]

Each DIR is put in front of the import path: one holds the unpacked wheel of transformers 4.12.3
(`pip download transformers==4.12.3 --no-deps`), another huggingface-hub 0.0.19 and sacremoses
(`pip install --target DIR2 --no-deps ...`). Any current torch works. Needs no network.
"""

import argparse
import pathlib
import sys
import types

import numpy as np
from packing import pack
from tables import EOS, TABLES, make_table

HERE = pathlib.Path(__file__).parent

# name: (table, beams, length penalty, early stopping)
SEARCHES = {
    "plain_2": ("plain", 2, 1.0, True),
    "plain_4_open": ("plain", 4, 1.0, False),
    "plain_4_long": ("plain", 4, 2.0, True),
    "early_2": ("early", 2, 1.0, True),
    "early_3_open": ("early", 3, 1.0, False),
    "early_5_sum": ("early", 5, 0.0, True),
    "early_4_short_open": ("early", 4, 0.5, False),
    "never_2": ("never", 2, 1.0, True),
    "never_4_open": ("never", 4, 0.7, False),
    "narrow_2": ("narrow", 2, 1.0, True),
    "narrow_3": ("narrow", 3, 1.0, True),
    "sharp_2": ("sharp", 2, 1.0, True),
    "sharp_4_open": ("sharp", 4, 1.3, False),
}

# name: (seed, transformers configuration beside the common one)
MODELS = {
    "v1_0": (11, dict(feed_forward_proj="relu", tie_word_embeddings=True)),
    "v1_1": (7, dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
}
ADAFACTORS = {"default": {}, "decayed": dict(weight_decay=0.01, beta1=0.9)}
EOS_WEIGHT = {"v1_0": 2.2, "v1_1": 0.6}
COMMON = dict(
    vocab_size=64,
    d_model=16,
    d_kv=8,
    d_ff=24,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=2,
    relative_attention_num_buckets=8,
    decoder_start_token_id=0,
    dropout_rate=0.1,
)


def import_old_transformers(libraries):
    # Its check of the versions of what it imports is out of date, what it imports is not.
    check = types.ModuleType("transformers.dependency_versions_check")
    check.dep_version_check = lambda *args, **kwargs: None
    sys.modules[check.__name__] = check
    sys.path[:0] = libraries
    import transformers

    if transformers.__version__ != "4.12.3":
        raise SystemExit(f"transformers 4.12.3 is needed, this is {transformers.__version__}")


def search_tables():
    import torch
    from transformers.generation_beam_search import BeamSearchScorer
    from transformers.generation_stopping_criteria import MaxLengthCriteria, StoppingCriteriaList
    from transformers.generation_utils import GenerationMixin

    class TableModel(GenerationMixin):
        config = types.SimpleNamespace(
            pad_token_id=0,
            eos_token_id=EOS,
            output_scores=True,
            output_attentions=False,
            output_hidden_states=False,
            return_dict_in_generate=True,
            is_encoder_decoder=False,
        )

        def __init__(self, table, beams):
            self.table, self.beams = torch.tensor(table.astype(np.float32)), beams

        def __call__(self, input_ids, **kwargs):
            example = torch.arange(len(input_ids)) // self.beams
            logits = self.table[example, input_ids.shape[1] - 1, input_ids[:, -1]]
            out = types.SimpleNamespace(logits=logits[:, None])
            return out

        def prepare_inputs_for_generation(self, input_ids, **kwargs):
            return {"input_ids": input_ids}

        def adjust_logits_during_generation(self, logits, **kwargs):
            return logits

        def _update_model_kwargs_for_generation(self, outputs, model_kwargs, **kwargs):
            return {"past": None}

    found = {f"table/{name}": make_table(name) for name in TABLES}
    for name, (table, beams, penalty, early) in SEARCHES.items():
        logits = found[f"table/{table}"]
        batch, length = logits.shape[:2]
        scorer = BeamSearchScorer(
            batch,
            beams,
            "cpu",
            length_penalty=penalty,
            do_early_stopping=early,
            num_beam_hyps_to_keep=beams,
        )
        out = TableModel(logits, beams).beam_search(
            torch.zeros((batch * beams, 1), dtype=torch.long),
            scorer,
            stopping_criteria=StoppingCriteriaList([MaxLengthCriteria(length + 1)]),
        )
        tokens = out.sequences.numpy()[:, 1:]
        tokens = np.pad(tokens, ((0, 0), (0, length - tokens.shape[1])))
        found[f"{name}/tokens"] = tokens.reshape(batch, beams, length).astype(np.int8)
        found[f"{name}/scores"] = out.sequences_scores.numpy().reshape(batch, beams)
        found[f"{name}/settings"] = np.array([beams, penalty, early], np.float32)
        found[f"{name}/table_name"] = np.array(table)
    np.savez_compressed(HERE / "hf_beam_search.npz", **found)


def make_eos_likely(model, hidden, weight):
    # Random weights hardly ever end a sequence: turn EOS's row towards the usual hidden state.
    mean = hidden[:, 1:5].mean((0, 1))
    model.lm_head.weight[EOS] = weight * mean / mean.norm()


def run_model(name):
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    seed, extra = MODELS[name]
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration(T5Config(**COMMON, **extra)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)  # norm scales other than 1
        model.shared.weight *= 0.7
    rng = np.random.default_rng(seed)
    inputs = rng.integers(2, 64, size=(4, 9))
    targets = rng.integers(2, 64, size=(4, 6))
    for row, (i, t) in enumerate([(9, 6), (7, 5), (4, 3), (9, 6)]):
        inputs[row, i:], targets[row, t:] = 0, 0
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    ids, mask = torch.tensor(inputs), torch.tensor(inputs > 0)
    teacher = dict(
        input_ids=ids,
        attention_mask=mask,
        decoder_input_ids=torch.tensor(shifted),
        output_hidden_states=True,
    )
    with torch.no_grad():
        make_eos_likely(model, model(**teacher).decoder_hidden_states[-1], EOS_WEIGHT[name])
        for p in model.parameters():
            p.copy_(p.half().float())
        found = pack({k: v.numpy() for k, v in model.state_dict().items()})
        found["logits"] = model(**teacher).logits.numpy()
        for beams in (1, 2, 4):
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                num_beams=beams,
                max_length=9,
                min_length=0,
                early_stopping=True,
                length_penalty=1.0,
                num_return_sequences=beams,
                output_scores=True,
                return_dict_in_generate=True,
            )
            tokens = out.sequences.numpy()[:, 1:]
            tokens = np.pad(tokens, ((0, 0), (0, 8 - tokens.shape[1])))
            found[f"beams_{beams}/tokens"] = tokens.reshape(4, beams, 8).astype(np.int8)
            if beams > 1:
                found[f"beams_{beams}/scores"] = out.sequences_scores.numpy().reshape(4, beams)
    found |= {"inputs": inputs.astype(np.int8), "targets": targets.astype(np.int8)}
    np.savez_compressed(HERE / f"hf_t5_{name}.npz", **found)
    return {k: found[k] for k in found if k.endswith("/tokens")}


def run_adafactor():
    """On the start and the gradients that `t5x_adafactor.npz` holds."""
    import torch
    from transformers.optimization import Adafactor

    found = {}
    with np.load(HERE / "t5x_adafactor.npz") as stored:
        names = sorted(k.split("/")[1] for k in stored if k.startswith("start/"))
        start = {k: stored[f"start/{k}"].astype(np.float32) for k in names}
        grads = {k: stored[f"grad/{k}"].astype(np.float32) for k in names}
    for run, settings in ADAFACTORS.items():
        params = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in start.items()}
        optimizer = Adafactor(
            list(params.values()),
            lr=0.01,
            scale_parameter=False,
            relative_step=False,
            warmup_init=False,
            **settings,
        )
        for step in range(len(grads[names[0]])):
            for k, p in params.items():
                p.grad = torch.tensor(grads[k][step])
            optimizer.step()
        found |= {f"{run}/{k}": p.detach().numpy() for k, p in params.items()}
    np.savez_compressed(HERE / "hf_adafactor.npz", **found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", action="append", default=[], help="a folder to import from")
    import_old_transformers(parser.parse_args().library)
    search_tables()
    run_adafactor()
    for model_name in MODELS:
        print(model_name, run_model(model_name))

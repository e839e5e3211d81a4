"""`t5x.infer`: T5X's arguments of an inference, over `train.infer`."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp

from ckl_jax.methods.method import Method, vanilla
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.t5x_api import names, utils
from ckl_jax.t5x_api.models import EncoderDecoderModel
from ckl_jax.t5x_api.partitioning import PjitPartitioner
from ckl_jax.train import infer as native


def infer(
    *,
    mode: str,
    model: EncoderDecoderModel,
    dataset_cfg: utils.DatasetConfig,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    partitioner: PjitPartitioner,
    output_dir: str,
    checkpoint_period: int,
    shard_id: int = 0,
    num_shards: int = 1,
    merge_chunked_results: bool = True,
    write_fn: Any = None,
    checkpoint_ds_iter: bool = True,
    fallback_init_rng: Any = None,
    merge_fn: Any = None,
    summarize_config_fn: Any = None,
    verify_matching_vocabs_fn: Any = None,
    output_vocab_feature_name: str = "targets",
    file_extension: str = "jsonl",
    keep_aux_as_numpy: bool = False,
    use_orbax: bool = True,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
) -> list[Path]:
    """Writes predictions or scores of a SeqIO task, as `train.infer.infer` says.

    Args:
      mode: "predict", "predict_with_aux" or "score".
      model: the base model; its `decode_fn` and number of decodes count.
      dataset_cfg: the task, and its split.
      restore_checkpoint_cfg: the checkpoint.
      partitioner: mesh and rules.
      output_dir: where the files go.
      checkpoint_period: batches of a chunk.
      shard_id, num_shards: does the inputs whose number is `shard_id` modulo `num_shards`.
      checkpoint_ds_iter, summarize_config_fn, keep_aux_as_numpy, use_orbax: without effect.
      method: the one that trained the checkpoint; T5X has no such argument.
      Others: must be left out.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    del checkpoint_ds_iter, summarize_config_fn, keep_aux_as_numpy, use_orbax
    names.not_offered(
        "infer.infer",
        write_fn=write_fn,
        merge_fn=merge_fn,
        fallback_init_rng=fallback_init_rng,
        verify_matching_vocabs_fn=verify_matching_vocabs_fn,
        merge_chunked_results=None if merge_chunked_results else "False",
        output_vocab_feature_name=None if output_vocab_feature_name == "targets" else "another",
        file_extension=None if file_extension == "jsonl" else file_extension,
    )
    from ckl_jax.t5x_api import seqio_data

    seqio_data.check_split(dataset_cfg)
    seqio_data.say_what_is_left_out("infer", dataset_cfg)
    written = []
    # Each task of a mixture has a file of its own, as T5X writes them.
    for one in seqio_data.tasks_of(dataset_cfg):
        written += native.infer(
            mode=mode,
            model=model,
            dataset_cfg=seqio_data.TaskInputs(one, model),
            restore_checkpoint_cfg=restore_checkpoint_cfg,
            output_dir=output_dir,
            method=method,
            partitioner=partitioner,
            checkpoint_period=checkpoint_period,
            shard_id=shard_id,
            num_shards=num_shards,
            # Not used by `_Generator`: the model's `decode_fn` has its own number of beams.
            beam_size=1,
            rule="t5x",
            generator_cls=_Generator,
        )
    return written


infer.__module__ = "t5x.infer"


class _Generator(EncoderDecoderGenerator):
    """Decodes by the model's own `decode_fn`; answers are the vocabulary's text."""

    def check_search(self) -> None:
        """Whatever `decode_fn` is, it is called with its own defaults."""

    def _search(self, params: Any, batch: Any, length: int, beams: int) -> Any:
        del beams
        tokens = batch["tokens"]
        batch = {
            "encoder_input_tokens": tokens,
            # Its values are not read; it says the length of the decoding.
            "decoder_input_tokens": jnp.zeros((tokens.shape[0], length), jnp.int32),
        }
        decoded, aux = self.model.predict_batch_with_aux(params, batch)
        self.all_decodes = decoded.ndim == 3  # known while it is traced
        if self.all_decodes:  # worst first, as T5X writes them
            return decoded, aux["scores"]
        # The generator's interface has an axis of candidates.
        return decoded[:, None], aux["scores"][:, None]

    def _text(self, ids: Any) -> str:
        # Without `clean`: T5X writes the decoded text, sentinels included.
        return self.model.output_vocabulary.decode(ids.tolist())

"""Names that gin files of earlier versions use, such as the `config.gin` of a run folder.

Lines keep their numbers: a statement that has no counterpart becomes empty.
"""

import re
from collections.abc import Mapping

_GAP = "papers.mind_the_gap"
# Modules below `ckl_jax.` that gin files import, and where they are now.
MODULES = {
    "data.byte_level": "data.text.byte_level",
    "data.masked_vocabulary": "data.text.masked_vocabulary",
    "data.vocabularies": "data.text.vocabularies",
    "jobs.asking": f"{_GAP}.office_holder_qa",
    "jobs.configs": "train.configs",
    "jobs.dynamic_eval": f"{_GAP}.dynamic_eval.dynamic_eval",
    "jobs.eval": "train.eval",
    "jobs.facts_task": "papers.ckl.facts_task",
    "jobs.forgetting": f"{_GAP}.dynamic_eval.past_text",
    "jobs.gradient_statistics": f"{_GAP}.dynamic_eval.gradient_statistics",
    "jobs.held_out": "train.held_out",
    "jobs.held_out_stream": f"{_GAP}.dynamic_eval.held_out_stream",
    "jobs.infer": "train.infer",
    "jobs.inputs": "train.inputs",
    "jobs.kilt_task": "papers.ckl.kilt_task",
    "jobs.mesh": "parallel.mesh",
    "jobs.precompile": "train.precompile",
    "jobs.proper_nouns": "papers.temporalwiki.proper_nouns",
    "jobs.ranking": "papers.lm_pub_quiz.probe",
    "jobs.restored": "train.restore",
    "jobs.simulated": "papers.ckl.simulated",
    "jobs.stream_runner": f"{_GAP}.dynamic_eval.runner",
    "jobs.train": "train.train",
    "probes.kilt": "papers.ckl.kilt",
}
_IMPORT = re.compile(r"^from ckl_jax\.(data|jobs|probes) import (\w+)( as \w+)?[ \t]*$", re.M)
# Statements, with their continuation lines, and what takes their place.
_STATEMENTS = [
    (re.compile(rf"^[\w/]*simulated\.{name} *= *[^\n]*(?:\n[ \t]+[^\n]*)*", re.M), "")
    for name in (
        r"initial_checkpoint\.\w+",
        r"vocabulary\.(?:seed|size)",
        r"vocabulary_and_rows\.(?!data_dir|make|checkpoint)\w+",
    )
]
_WORDS = [
    (re.compile(r"@simulated\.initial_checkpoint\(\)"), "%INITIAL_DIR"),
    (re.compile(r"\bsimulated\.vocabulary_and_rows\b"), "simulated.vocabulary"),
    (re.compile(r"\bcontinuing\.Continuer\b"), "continuing.DecoderOnlyGenerator"),
    (re.compile(r"\banswerer_cls\b"), "generator_cls"),
]
# Macros and parameters of later versions, by the name before.
MACROS = {
    "INIT_DEVIATION": "INIT_STDDEV",
    "LANES": "STREAM_BATCH_SIZE",
    "PAST_LANES": "PAST_BATCH_SIZE",
}
PARAMETERS = {
    "PastText": {"lanes": "batch_size"},
    "StreamConfig": {"lanes": "batch_size"},
    "TransformerXLConfig": {"init_deviation": "init_stddev"},
    "replay.replay": {"share": "fraction"},
}
_MACRO = re.compile(rf"(?:^(?=\w+[ \t]*=)|(?<=%))({'|'.join(MACROS)})\b", re.M)


def translate(text: str) -> str:
    """Replaces old names by current ones in the text of a gin file or in a binding."""
    text = _MACRO.sub(lambda m: MACROS[m[1]], text)
    for function, names in PARAMETERS.items():
        text = _renamed_parameters(text, function, names)
    if not any(f"{m[1]}.{m[2]}" in MODULES for m in _IMPORT.finditer(text)):
        return text
    text = _IMPORT.sub(_moved, text)
    for pattern, new in _STATEMENTS:
        text = pattern.sub(lambda m, new=new: new + "\n" * m[0].count("\n"), text)
    for pattern, new in _WORDS:
        text = pattern.sub(new, text)
    return text


def _renamed_parameters(text: str, function: str, names: Mapping[str, str]) -> str:
    def rename(match: re.Match) -> str:
        return match[1] + names[match[2]]

    old = rf"({'|'.join(names)})(?=[ \t]*=)"
    text = re.sub(rf"^([\w./]*\b{re.escape(function)}\.){old}", rename, text, flags=re.M)
    # The indented lines below `function:`, with blank lines and comments among them.
    block = rf"^[\w./]*\b{re.escape(function)}:.*(?:\n(?:[ \t].*|#.*)?)*"
    inside = re.compile(rf"^([ \t]+){old}", re.M)
    return re.sub(block, lambda m: inside.sub(rename, m[0]), text, flags=re.M)


def _moved(match: re.Match) -> str:
    new = MODULES.get(f"{match[1]}.{match[2]}")
    if new is None:
        return match[0]
    package, _, leaf = new.rpartition(".")
    alias = match[3] or ("" if leaf == match[2] else f" as {match[2]}")
    return f"from ckl_jax.{package} import {leaf}{alias}"

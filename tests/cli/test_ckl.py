"""Every command of `ckl` says what it takes, and refuses what it does not in one sentence."""

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

import ckl_jax
from ckl_jax.cli import ckl

SETTINGS = {
    "data.facts.wikidata_json": ["FactRules"],
    "papers.ckl.demo": ["Demo"],
    "papers.ckl.settings": ["Running"],
    "papers.ckl.data.benchmark": ["Options"],
    "papers.lm_pub_quiz.settings": ["Settings", "Stream"],
    "papers.mind_the_gap.analysis.staleness_study": ["StalenessStudy"],
    "papers.mind_the_gap.data.clean": ["Options"],
    "papers.mind_the_gap.data.dated_vocabulary": ["DatedVocabulary"],
    "papers.mind_the_gap.data.time_splits": ["Options"],
    "papers.mind_the_gap.settings": ["Gap", "Settings"],
    "papers.temporalwiki.data.diffsets": ["Options"],
    "papers.temporalwiki.data.probe_rows": ["Job"],
    "papers.temporalwiki.settings": ["Updates"],
    "cli.world": ["WorldSettings"],
}


def sentence(capsys, argv) -> str:
    capsys.readouterr()
    assert ckl.main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("ckl: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("name", ckl.commands())
def test_help_of_every_command(name, capsys):
    command = ckl.commands()[name]
    assert re.fullmatch(r"[A-Z][a-z-]+ .*\.", command.summary)
    assert ckl.main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: ckl {name} ") and command.summary in " ".join(out.split())
    assert "(default: None)" not in out and "default: None" not in " ".join(out.split())
    # Every option says what it is, beside its name and its default.
    options = re.split(r"\n (?: ?)(?=--[a-z]|[A-Z]+\.\.\.)", out)[1:]
    for option in options:
        words = re.sub(r"\(default:[^)]*\)|\(required\)|\(repeatable\)|\{[^}]*\}", "", option)
        assert len(words.split()) > 2, f"{name}: no help for {option!r}"


def test_help_needs_no_jax():
    code = (
        "import sys; from ckl_jax.cli import ckl\n"
        "for name in ckl.commands(): assert ckl.main([*name.split(), '--help']) == 0\n"
        "sys.exit('imported jax' if {'jax', 'tensorflow', 'torch'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_lists_the_commands_by_group(capsys):
    assert ckl.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in ckl.commands())
    for title in ("Run a study", "Make data of text", "Convert models", "Probe and report"):
        assert out.count(f"\n{title}:\n") == 1
    assert ckl.main(["data", "--help"]) == 0
    out = capsys.readouterr().out
    assert "\n  data clean " in out and "demo" not in out


@pytest.mark.parametrize(
    "argv, expected",
    [
        ([], "a command is missing; see 'ckl --help'."),
        (["data"], "a command is missing; see 'ckl data --help'."),
        (["dmeo"], "there is no command 'dmeo'; see 'ckl --help'. Did you mean 'demo'?"),
        (["data", "clen"], "see 'ckl data --help'. Did you mean 'clean'?"),
        (["demo", "--sede", "1"], "unrecognized arguments: --sede 1; see 'ckl demo --help'. Did"),
        (["demo", "extra"], "unrecognized arguments: extra;"),
        (["import-hf", "gpt2", "--out", "x"], "Did you mean --model gpt2?"),
        (["promote", "--if", "new", "<=", "1"], "Quote the value of --if if it has spaces."),
        (
            ["data", "nondiffset", "--share", "1"],
            "'ckl data nondiffset --help'. It is --fraction now.",
        ),
        (["data", "benchmark", "--wordings=x"], "--help'. It is --templates now."),
        (["data", "rows", "--documents", "a", "--documents=b"], "--documents is given twice; give"),
        (
            ["average", "a", "b", "--out", "c", "--weights", "nan,1"],
            "--weights is 'nan,1'; give num",
        ),
        (["demo", "--size", "huge"], "--size is 'huge'; choose from tiny, small, wide, medium,"),
        (["ledger", "x", "--state", "old"], "choose from kept, updated, learned, stale,"),
        (["demo", "--source", "wikidat"], "Did you mean 'wikidata'?"),
        (["demo", "--seed", "x"], "--seed is 'x'; give a whole number."),
        (["demo", "--seed"], "--seed lacks a value;"),
        (["demo", "--gin.EPOCHS"], "--gin.EPOCHS needs its value after `=`: --gin.EPOCHS=VALUE."),
        (["import-hf", "--model", "x"], "required: --out; see 'ckl import-hf --help'."),
        (["average", "--out", "x"], "required: MODELS;"),
        (["ask", "--questions", "x"], "required: --model;"),
        (["overlap"], "required: FOLDER;"),
        (["mind-the-gap", "--rates", "a,1"], "--rates is 'a,1'; give numbers with commas between."),
        (["--print-completion", "sh"], "needs a shell: bash, zsh, fish."),
    ],
)
def test_a_mistake_is_one_sentence(capsys, argv, expected):
    assert expected in sentence(capsys, argv)


def test_help_says_what_a_flag_does(capsys):
    assert ckl.main(["mind-the-gap", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "--no-clean Take --documents as they are" in out and "default: True" not in out
    assert ckl.main(["ledger", "--help"]) == 0
    assert "--state {kept,updated,learned,stale,forgotten,never known}" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--gin", "EPOCHS = 2"], ["--gin=EPOCHS=2"], ["--gin.EPOCHS=2"]])
def test_gin_bindings_are_spelled_as_in_t5x(flags):
    run = ckl.parse(["stream", "--gin", "A=-1", *flags])
    first, second = run.keywords["settings"].bindings
    assert first == "A=-1" and second.replace(" ", "") == "EPOCHS=2"


def test_names_have_commas_between():
    settings = ckl.parse(["temporalwiki", "--methods", "full, lora"]).keywords["settings"]
    assert settings.methods == ("full", "lora")
    settings = ckl.parse(["mind-the-gap", "--masks=", "--rates=0.1,2"]).keywords["settings"]
    assert settings.masks == () and settings.rates == (0.1, 2.0)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell, capsys):
    assert ckl.main(["--print-completion", shell]) == 0
    out = capsys.readouterr().out
    assert "mind-the-gap" in out and "--tuning-documents" in out
    (spec,) = (line for line in out.splitlines() if line.startswith("COMPLETION_SPEC = "))
    # The script takes each line of a description for a choice.
    assert r"\n" not in spec and "'disjoint'" in spec and "'None'" not in spec
    # Settings for Python alone, which the command line refuses.
    for hidden in ("--bos", "--shard-bytes", "--no-near-duplicates"):
        assert f"'{hidden}'" not in spec
    assert "'--no-bos'" in spec


def test_modules_of_the_user_are_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_architecture.py").write_text("")
    argv = ["import-hf", "--model", "nowhere/at/all", "--out", "out", "--trust-imports"]
    assert ckl.main([*argv, "no_such_module"]) == 2
    assert "--trust-imports no_such_module: No module named" in capsys.readouterr().err
    assert ckl.main([*argv, "my_architecture"]) == 2
    assert sys.modules.pop("my_architecture")


@pytest.mark.parametrize("module", SETTINGS)
def test_settings_are_keyword_only(module):
    for name in SETTINGS[module]:
        settings = getattr(importlib.import_module(f"ckl_jax.{module}"), name)
        assert settings.__dataclass_params__.frozen
        assert all(field.kw_only for field in dataclasses.fields(settings)), settings


@pytest.mark.parametrize("day", ["hello", "9999-99-99", "2019-02-30"])
def test_a_dataset_is_of_a_day(day, tmp_path, capsys):
    out = tmp_path / "quiz"
    assert ckl.main(["data", "quiz", "--size", "tiny", "--date", day, "--out", str(out)]) == 2
    assert f"--date is {day!r}; give a day as YYYY-MM-DD" in capsys.readouterr().err
    assert not out.exists()


def test_a_dataset_of_others_is_not_written_over(tmp_path, capsys):
    (tmp_path / "metadata_relations.json").write_text("{}")
    assert ckl.main(["data", "quiz", "--size", "tiny", "--out", str(tmp_path)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "metadata_relations.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("command", "name"), [("data quiz", "P19.jsonl"), ("data kilt", "nq-dev-kilt.jsonl")]
)
def test_what_a_command_has_made_is_replaced_when_asked_to(command, name, tmp_path):
    argv = [*command.split(), "--size", "tiny", "--out", str(tmp_path / "out")]
    assert ckl.main(argv) == 0
    before = (tmp_path / "out" / name).read_bytes()
    assert ckl.main([*argv, "--seed", "5", "--overwrite"]) == 0
    assert (tmp_path / "out" / name).read_bytes() != before


def test_dumps_of_two_worlds_do_not_mix(tmp_path, capsys):
    argv = ["data", "dumps", "--size", "tiny", "--out", str(tmp_path / "out"), "--months"]
    assert ckl.main([*argv, "3"]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert ckl.main([*argv, "2", "--seed", "5"]) == 2
    assert "choose another --out, or add --overwrite" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert ckl.main([*argv, "2", "--seed", "5", "--overwrite"]) == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    dumps = {name for name in after if "2" in name}
    assert len(dumps) == 6 and all(after[name] != before[name] for name in dumps)
    assert ckl.main([*argv, "3", "--seed", "5"]) == 0  # more of the same


def test_a_world_in_the_place_of_another_leaves_nothing_of_it(tmp_path):
    out = ["--size", "tiny", "--out", str(tmp_path / "out")]
    assert ckl.main(["world", *out]) == 0
    assert (tmp_path / "out" / "wikipedia_review.csv").exists()
    assert ckl.main(["world", *out, "--world", "legacy", "--overwrite"]) == 0
    assert ckl.main(["world", *out[:-1], str(tmp_path / "other"), "--world", "legacy"]) == 0
    found = ({p.name: p.read_bytes() for p in (tmp_path / n).glob("*.*")} for n in ("out", "other"))
    first, second = found
    assert first == second


@pytest.mark.parametrize("name", ckl.commands())
def test_every_command_returns_what_json_prints(name):
    assert "dict[" in str(inspect.signature(ckl.commands()[name].load()).return_annotation)


def test_quiet_prints_errors_only_and_json_one_object(capsys, tmp_path):
    out = ["data", "quiz", "--size", "tiny", "--out"]
    assert ckl.main([*out, str(tmp_path / "a"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert ckl.main([*out, str(tmp_path / "c"), "--size", "huge", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("ckl: ")
    assert ckl.main(["--json", *out, str(tmp_path / "b")]) == 0
    told, shown = capsys.readouterr()
    found = json.loads(told)
    assert found["exit_code"] == 0 and found["output"] == shown.splitlines() != []
    counts = [line.split()[::-1] for line in shown.splitlines()]
    assert found["facts"] == {code: int(count) for code, count in counts}
    assert ckl.main(["--version", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == [f"ckl_jax {ckl_jax.__version__}"]

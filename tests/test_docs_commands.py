"""The commands that the documentation shows: each is parsed and, but for a list, executed."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckl_jax.cli import ckl, outputs, t5x
from ckl_jax.config import gin_files
from ckl_jax.errors import UserError
from tests.xla_flags import xla_flags

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(f for d in ("docs", "examples", "benchmarks") for f in ROOT.glob(f"{d}/**/*.md")),
    }
)
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```|((?:^    [^\n]*\n)+)", re.M | re.S)
# What a command says of arguments that do not exist, and not of files that are not here.
NO_SUCH = re.compile(r"unrecognized|there is no |are required|choose from|is missing; see|Unknown")
# Those that need nothing but their words, and take seconds.
QUICK = re.compile(
    r"ckl (experiment list|(world|data (quiz|stream|dumps))\b(?!.*--data)|demo .*tiny)"
)
OURS = re.compile(r"(ckl|temporalwiki|mind_the_gap|lm_pub_quiz)_")


def lines(page):
    """The lines of a page's blocks; of a loop in one line, each command with the first value."""
    for fenced, indented in BLOCK.findall(page.read_text()):
        for line in re.sub(r"\\\n\s*", "", fenced or indented).splitlines():
            if loop := re.match(r"\s*for (\w) in (\S+) .*?; do (.*?)(; done)?$", line):
                yield from loop[3].replace(f"${loop[1]}", loop[2]).split(";")
            else:
                yield line


def commands(page):
    """The commands of a page's blocks, without comments, each as words."""
    for line in lines(page):
        if re.match(r"\s*(ckl|t5x) [\w-]", line) and "..." not in line:
            optional = re.sub(r" \[(--[^]|]*)( \|[^]]*)?\]", r" \1", line)
            words = shlex.split(optional, comments=True)
            ends = [i for i, word in enumerate(words) if word in (">", "|", "&&", ";")]
            yield tuple(words[: min(ends, default=None)])


ALL = sorted({command for page in PAGES for command in commands(page)})


def test_commands_are_found():
    assert len(ALL) > 100 and ("ckl", "demo", "--size", "tiny") in ALL


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_exists(page):
    for program, *words in commands(page):
        try:
            if program == "ckl":
                ckl.parse([w for w in words if w not in outputs.FLAGS])
                continue
            mode, *flags = words
            args = t5x._parser(mode).parse_args(t5x._rewrite(flags))
            for name in args.gin_file:
                known = name in gin_files.bundled_files() or [*ROOT.glob(f"examples/*/{name}")]
                assert known or not OURS.match(name), f"{page}: {name}"
            assert mode in t5x.MODES, f"{page}: {mode}"
        except UserError as e:
            assert not NO_SUCH.search(str(e)), f"{page}: {program} {shlex.join(words)}: {e}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_and_their_options_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for line in lines(page):
        words = shlex.split(line.strip(), comments=True) if "'" not in line else line.split()
        match words:
            case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
                source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
                missing = [w for w in rest if w.startswith("--") and f'"{w}"' not in source]
                assert not missing, f"{page}: {module} {missing}"
            case ["make", target, *_]:
                assert f"\n{target}:" in makefile, f"{page}: make {target}"
            case [script, *_] if script.startswith("tpu_scripts/"):
                assert (ROOT / script).exists(), f"{page}: {script}"


def is_quick(program, *words):
    if program == "ckl":
        return bool(QUICK.match(shlex.join((program, *words))))
    files = [word.partition("=")[2] for word in words if word.startswith("--gin_file")]
    return words[0] == "train" and set(files) <= set(gin_files.bundled_files())


# Of studies and trainings on pages, the tests run the smallest: pattern of a command, more words.
SHORTER = {
    r"ckl experiment(?!.*--dry-run)": ["--dry-run"],
    r"ckl (demo|stream|mind-the-gap|world|data quiz|data dumps)(?!.*--size)": ["--size", "tiny"],
    r"ckl temporalwiki --size(?!.*--months)": [
        "--months=2",
        "--methods=diff",
        "--initial-epochs=1",
    ],
    r"ckl temporalwiki (--snap|.*--months)": ["--dry-run"],
    r"ckl demo .*--(seed|source|world)": ["--methods=vanilla", "--gin.TRAIN_STEPS=4"],
    r"ckl stream": ["--epochs=1", "--initial-epochs=1", "--experiences=1"],
    r"ckl mind-the-gap(?!.*--past)": ["--past-documents=2"],
    r"ckl mind-the-gap(?!.*--measure)": ["--measure=documents"],
    r"ckl mind-the-gap(?!.*EPOCHS)": ["--gin.EPOCHS=None", "--gin.TRAIN_STEPS=9"],
    r"ckl mind-the-gap(?!.*--rates)": ["--rates=0.1"],
    r"ckl mind-the-gap(?!.*--masks)": ["--masks=bias"],
    r"ckl mind-the-gap .*--test-period 23": ["--test-period=6"],
    r"ckl mind-the-gap .*--bin-months 24": [
        "--test-period=2",
        "--bin-months=1",
        "--validation-months=12",
    ],
    r"ckl update": ["--epochs=1", "--max-items=8", "--ship-if=new<=1"],
    r"t5x precompile .*(full|large)": ["--gin.COMPILE=False"],
    r"t5x train (?!.*=runs/(temporalwiki_lora|gpt2|qwen)/)": ["--dry_run"],
    r"t5x train .*=runs/": ["--gin.TRAIN_STEPS=2", "--gin.EPOCHS=None"],
    r"t5x train .*=runs/(gpt2|qwen)/": ["--gin.BATCH_SIZE=8"],
    r"t5x train .*light_tune.gin(?!.*BATCH)": ["--gin.BATCH_SIZE=4"],
}


# Commands that begin so are not run: why.
NOT_RUN = {
    "t5x train --gin_file=my_finetune.gin": "a SeqIO task, and a checkpoint of T5X's",
    "t5x eval --gin_file=my_eval.gin": "a SeqIO task, and a checkpoint of T5X's",
    "t5x infer --gin_file=my_infer.gin": "a SeqIO task, and a checkpoint of T5X's",
    "t5x precompile --gin_file=my_finetune.gin": "a SeqIO task",
    "ckl data diffsets --old OLD": "Apache Beam, in an environment of its own",
    "ckl data probes --old OLD": "Apache Beam, in an environment of its own",
    "ckl experiment mind_the_gap/newsqa --documents": "NewsQA's stories, of 2006 to 2009",
    "ckl temporalwiki --snapshots dumps --watch": "it never ends",
}
# Files that a page shows: a text in the block.
WRITTEN = {"docs/probes.md": {"my_probes.py": "def mayors", "mayors.gin": "import my_probes"}}
# The example in whose folder a page's commands are run.
EXAMPLES = {"docs/methods/README.md": "examples/ia3_method"}


def here(word):
    """A word of a command with absolute folders and the shell's variables as in the test."""
    word = re.sub(r"/(data|path)/", r"\1/", word)
    for name, value in {"$s": "0", "$t": "table3", "$PWD": ".", "$d": "2021-01-01"}.items():
        word = word.replace(name, value)
    return re.sub(r"^(wide|medium|large|small)$", "tiny", word)


def rest(page):
    """The commands of a page that `test_quick_commands_run` does not run, or others build on."""
    for command in dict.fromkeys(commands(page)):
        left_out = shlex.join(command).startswith(tuple(NOT_RUN))
        if not left_out and (command[0] == "ckl" or not is_quick(*command)):
            yield command


def execute(made, page, command, folder):
    """Runs a command in `folder`, where what it names and no command made is stood in for."""
    words = [here(w) for w in command]
    anew = {"--documents", "--seed", "--source", "--world"} & {*words}
    goes_on = words[1] in ("demo", "mind-the-gap") and not anew
    goes_on |= words[1] == "update" and "--model" not in words
    outs = {w for f, w in zip(words, words[1:], strict=False) if f == "--out"}
    named = [*words[2:], *(["runs/demo"] if words[1:] in (["demo"], ["report"]) else [])]
    for word in named:
        for path in re.findall(r"[\w./*-]+", word):
            for p in (*reversed(Path(path).parents), Path(path)):
                if p.is_absolute() or str(p) == "." or (str(p) in outs and not goes_on):
                    continue
                for name in (str(p).replace("*", f"{i}") for i in range(2)):
                    made.put(str(page.relative_to(ROOT)), name, folder)
    for out in set() if goes_on else {folder / out for out in outs} & made.placed:
        shutil.rmtree(out)
        made.placed.remove(out)
    line = shlex.join(words)
    for pattern, more in SHORTER.items():
        if re.match(pattern, line):
            words += more
    for name, text in WRITTEN.get(str(page.relative_to(ROOT)), {}).items():
        blocks = [fenced for fenced, _ in BLOCK.findall(page.read_text())]
        (folder / name).write_text(next(block for block in blocks if text in block))
    example = ROOT / EXAMPLES.get(str(page.relative_to(ROOT)), page.parent)
    if example.parent == ROOT / "examples":
        shutil.copytree(example, folder, dirs_exist_ok=True)
    expanded = []
    for w in words[1:]:
        found = (
            sorted(str(p.relative_to(folder)) for p in folder.glob(w))
            if "*" in w and "--" not in w
            else []
        )
        expanded += found or [w]
    if any(word.startswith("--devices") for word in words):  # before JAX starts
        code = subprocess.run([sys.executable, "-m", "ckl_jax", *expanded], cwd=folder).returncode
    else:
        code = {"ckl": ckl, "t5x": t5x}[words[0]].main(expanded)
    return expanded, 0 if code in (1, 3) and words[1] in ("update", "promote") else code


IN_PROCESS = [c for c in ALL if is_quick(*c) and not re.match("ckl (demo|world|data)", " ".join(c))]


@pytest.mark.parametrize("command", IN_PROCESS, ids=lambda c: shlex.join(c)[:80])
def test_quick_commands_run(command, tmp_path, monkeypatch, one_device):
    """Those of `t5x train` that need only bundled gin files, up to `--dry_run`."""
    monkeypatch.chdir(tmp_path)
    program, *words = command
    assert (ckl.main(words) if program == "ckl" else t5x.main([*words, "--dry_run"])) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny):
    from tests.stand_ins import StandIns

    return StandIns(tmp_path_factory.mktemp("stand_ins"), tiny)


@pytest.fixture
def one_device(monkeypatch):
    """One device, as readers have, in the processes that a command starts and in this one."""
    import jax

    devices = jax.devices()[:1]
    monkeypatch.setenv("XLA_FLAGS", xla_flags(devices=1))
    for name in ("", "local_"):
        monkeypatch.setattr(jax, f"{name}devices", lambda *given, **named: devices)
        monkeypatch.setattr(jax, f"{name}device_count", lambda *given: 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # they are told to readers, as commands do
@pytest.mark.usefixtures("undrawn", "in_this_process", "one_device")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(rest(p))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages_run_from_top_to_bottom(page, made, tmp_path, monkeypatch):
    """The other commands, on small stand-ins, in the order of their page."""
    monkeypatch.chdir(tmp_path)
    for command in rest(page):
        words, code = execute(made, page, command, tmp_path)
        assert code == 0, shlex.join(words)


def test_every_command_is_run_or_on_a_list():
    executed = {*IN_PROCESS, *(command for page in PAGES for command in rest(page))}
    left = {shlex.join(command) for command in {*ALL} - executed}
    listed = tuple(NOT_RUN)
    assert all(line.startswith(listed) for line in left)
    assert all(any(line.startswith(start) for line in left) for start in listed), "a stale entry"

"""The commands that the documentation shows: each is parsed, and the quick ones are run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ckl_jax.cli import ckl, outputs, t5x
from ckl_jax.config import gin_files
from ckl_jax.errors import UserError

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
    """The lines of a page's blocks; of a loop in one line, each command with the variable as 0."""
    for fenced, indented in BLOCK.findall(page.read_text()):
        for line in re.sub(r"\\\n\s*", "", fenced or indented).splitlines():
            if loop := re.match(r"\s*for (\w) in .*?; do (.*?)(; done)?$", line):
                yield from loop[2].replace(f"${loop[1]}", "0").split(";")
            else:
                yield line


def commands(page):
    """The commands of a page's blocks, without comments, each as words."""
    for line in lines(page):
        if re.match(r"\s*(ckl|t5x) [\w-]", line) and "..." not in line:
            optional = re.sub(r" \[(--[^]]*)\]", r" \1", line)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [c for c in ALL if is_quick(*c)], ids=lambda c: shlex.join(c)[:80]
)
def test_quick_commands_run(command, tmp_path, monkeypatch):
    """Those of `t5x train` that need only bundled gin files, up to `--dry_run`."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device, as readers have
    program, *words = command
    module = ["ckl_jax.cli.ckl"] if program == "ckl" else ["ckl_jax"]
    more = [] if program == "ckl" else ["--dry_run"]
    done = subprocess.run(
        [sys.executable, "-m", *module, *words, *more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

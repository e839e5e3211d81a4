"""Rules of the house: who may import whom, and that the requirements files say what is true."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
HEAVY = {"tensorflow", "seqio", "tensorflow_datasets", "tensorflow_text", "clu"}

JOBS = ("config", "convert", "papers", "parallel", "train")

# room -> top-level names that its modules must not import, at any depth of the file
FORBIDDEN = {
    "ckl_jax/models": {"gin", "os", "pathlib", "io", *HEAVY},
    "ckl_jax/methods": {"gin", "os", "pathlib", "io", *HEAVY},
    "ckl_jax/optim": {"gin", "os", "pathlib", "io", *HEAVY},
    "ckl_jax/trees": {"gin", "os", "pathlib", "io", *HEAVY},
    "ckl_jax/world": {"jax", "flax", "optax", "gin", *HEAVY},
    "ckl_jax/analysis": {"jax", "flax", "optax", "gin", *HEAVY},
    "ckl_jax/data": {"jax", "flax", "optax", "gin", *HEAVY},
    "ckl_jax/probes": {"gin", *HEAVY},
    "ckl_jax/checkpoints": {"gin", "torch", "pickle", *HEAVY},
    **{f"ckl_jax/{room}": {"torch", "pickle", "tensorflow"} for room in JOBS},
    "ckl_jax": {"torch", "pickle", "t5x"},
}
# The one module that may need T5X; it is for T5X's own command line, and nothing imports it.
BRIDGE = ROOT / "ckl_jax" / "upstream.py"
# The rooms of the core, lowest first; `ABOVE` says which may not be imported by which.
KERNEL = {"models", "methods", "optim", "trees"}
TRAINING = {"train", "convert"}
TOP = {"papers", "t5x_api", "cli", "updates"}
PAPERS = ("ckl", "temporalwiki", "lm_pub_quiz", "mind_the_gap")
# room -> rooms of ours that it must not import
_OF_DATA = {"models", "methods", "checkpoints", "config", "parallel", "analysis", *TRAINING, *TOP}
ABOVE = {
    "trees": {*KERNEL, "data", "probes", "checkpoints", "analysis", "world", *TRAINING, *TOP},
    "optim": {"models", "methods", "data", "probes", "analysis", "world", *TRAINING, *TOP},
    "models": {"methods", "data", "probes", "checkpoints", "analysis", "world", *TRAINING, *TOP},
    "methods": {"probes", "checkpoints", "analysis", "world", *TRAINING, *TOP},
    "data": {"probes", "world", *_OF_DATA},
    "world": {"probes", *_OF_DATA},
    "analysis": _OF_DATA - {"analysis"},
    "probes": {"methods", "checkpoints", "config", "analysis", "world", *TRAINING, *TOP},
    "checkpoints": {"probes", "config", "parallel", "analysis", "world", *TRAINING, *TOP},
    "config": {*KERNEL, "data", "probes", "checkpoints", "analysis", "world", *TRAINING, *TOP},
    "parallel": {"methods", "data", "probes", "checkpoints", "analysis", "world", *TRAINING, *TOP},
    "train": {"world", "convert", *TOP},
    "convert": {"world", *TOP},
    "t5x_api": {"world", "cli", "updates"},
    "papers": {"t5x_api", "cli", "updates"},
    "updates": {"t5x_api", "cli"},
}
# What a paper keeps apart from its jobs, held to the rules of the core's rooms of the same name.
PARTS = {"data": {"jax", "flax", "optax", "gin", *HEAVY}, "analysis": FORBIDDEN["ckl_jax/analysis"]}


@functools.cache  # every rule reads the same files
def imports(path):
    """Absolute names that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@functools.cache
def bound(path):
    """Names that a file binds anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def files(room):
    found = sorted((ROOT / room).rglob("*.py"))
    assert found, f"{room} has no module: mend this test"
    return found


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_nothing_forbidden(room):
    for path in files(room):
        names = imports(path)
        assert "ckl_jax.upstream" not in names, path
        tops = {name.split(".")[0] for name in names} - ({"t5x"} if path == BRIDGE else set())
        assert not tops & FORBIDDEN[room], f"{path}: {tops & FORBIDDEN[room]}"


@pytest.mark.parametrize("room", ABOVE)
def test_rooms_import_only_rooms_below_them(room):
    for path in files(f"ckl_jax/{room}"):
        rooms = {n.split(".")[1] for n in imports(path) if n.startswith("ckl_jax.")}
        assert not rooms & (ABOVE[room] - {room}), f"{path}: {rooms & ABOVE[room]}"


@pytest.mark.parametrize("paper", PAPERS)
def test_no_paper_imports_another(paper):
    others = {other for other in PAPERS if other != paper}
    for path in files(f"ckl_jax/papers/{paper}"):
        found = {n.split(".")[2] for n in imports(path) if n.startswith("ckl_jax.papers.")}
        assert not found & others, f"{path}: {found & others}"


def test_the_papers_are_these():
    papers = (ROOT / "ckl_jax" / "papers").iterdir()
    folders = {p.name for p in papers if (p / "__init__.py").exists()}
    assert folders == set(PAPERS)


@pytest.mark.parametrize("part", PARTS)
def test_data_and_analysis_of_papers_need_no_jax(part):
    for paper in PAPERS:
        for path in (ROOT / "ckl_jax" / "papers" / paper / part).rglob("*.py"):
            names = imports(path)
            tops = {name.split(".")[0] for name in names}
            assert not tops & PARTS[part], f"{path}: {tops & PARTS[part]}"
            rooms = {n.split(".")[1] for n in names if n.startswith("ckl_jax.")}
            assert not rooms & ({"train", "parallel", "config", "checkpoints", "models"}), path


def test_no_imports_go_in_circles():
    """Of modules with one another, also those within functions."""
    modules = {}
    for path in files("ckl_jax"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    graph = {name: set() for name in modules}
    for name, path in modules.items():
        for target in imports(path):
            while target and target not in modules:
                target = target.rpartition(".")[0]
            graph[name] |= {target} - {name, "", "ckl_jax"}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_names_that_modules_import_of_one_another_are_there():
    """Also in modules that only slow tests import."""
    names = {path: {*bound(path)} for path in files("ckl_jax") + files("tasks")}
    for path in names:
        for module, _, name in (n.rpartition(".") for n in imports(path)):
            source = ROOT / (module.replace(".", "/") + ".py")
            if source in names:
                assert {name, "__getattr__"} & names[source], f"{path}: {module}.{name}"


def test_tests_mirror_the_package():
    """Every folder of tests has its counterpart, and no test of a room lies in another."""
    own = {"examples", "parity", "tasks", "tpu_scripts"}
    for folder in {path.parent.relative_to(ROOT / "tests") for path in files("tests")}:
        if folder.parts and folder.parts[0] not in own and folder.name != "golden":
            assert (ROOT / "ckl_jax" / folder).is_dir(), f"tests/{folder} mirrors no folder"


def test_no_code_asks_for_an_architecture_by_name():
    """Outside its own files; the others read its record (`checkpoints.architectures`)."""
    known = {
        cls
        for path in files("ckl_jax/models")
        for cls in re.findall(r"^class (\w+Config)\b", path.read_text(), re.MULTILINE)
    }
    assert {"T5Config", "GPT2Config", "BertConfig", "TransformerXLConfig"} <= known
    # Such as "gpt2.GPT2Config" and "t5.T5Config.vocab_size", names in gin files.
    gin_name = re.compile(rf"\w+\.({'|'.join(known)})(\.\w+)?:?")
    for path in files("ckl_jax"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.args[1])}
                assert not asked & known, f"{path}, line {node.lineno}: isinstance of {asked}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = gin_name.fullmatch(node.value)
                assert not name, f"{path}, line {node.lineno}: {node.value!r}"


def test_models_and_methods_open_no_files():
    for room in ("models", "methods", "optim", "trees"):
        for path in files(f"ckl_jax/{room}"):
            calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            names = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
            assert not names & {"open", "exec", "eval"}, path


def test_an_installation_takes_no_name_but_ours():
    """`tasks` and `gin_configs` are names of users' own folders; the package links to ours."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["setuptools"]["packages"]["find"]["include"] == ["ckl_jax*"]
    for name in ("tasks", "gin_configs"):
        assert (ROOT / "ckl_jax" / name).resolve() == ROOT / name
    assert not (ROOT / "tasks" / "__init__.py").exists(), "it would hide a user's folder tasks/"


def test_only_tasks_imports_seqio():
    for path in ROOT.glob("**/*.py"):
        relative = path.relative_to(ROOT)
        if relative.parts[0] in ("tasks", "tests", ".venv", "build"):
            continue
        assert "seqio" not in {name.split(".")[0] for name in imports(path)} or (
            relative
            in (
                Path("ckl_jax/parallel/processes.py"),  # adds cache folders if it is installed
                Path("ckl_jax/t5x_api/seqio_data.py"),  # T5X's gin files name SeqIO's own tasks
                Path("benchmarks/upstream.py"),  # T5X's own model takes SeqIO's vocabulary
            )
        ), path


def test_one_module_reads_json():
    """`files.parse_json` says what is wrong with a text; the parser alone raises four errors."""
    for path in files("ckl_jax"):
        reads = re.findall(r"\bjson\.(?:loads?|JSONDecoder)\b", path.read_text())
        assert not reads or path == ROOT / "ckl_jax" / "files.py", f"{path}: {reads}"


def requirement_lines(name):
    lines = (ROOT / name).read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and line[0] not in "#-"}


def test_requirements_files_equal_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirement_lines("requirements-core.txt") == set(project["dependencies"])
    assert requirement_lines("requirements.txt") == set(project["optional-dependencies"]["seqio"])


def test_constraints_pin_each_dependency_within_its_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(line.split("==") for line in requirement_lines("constraints.txt"))
    lines = list(project["dependencies"])
    for extra, wanted in project["optional-dependencies"].items():
        if extra not in (
            "beam",
            "cuda",
            "gcs",
            "docs",
            "harness",
            "mlflow",
            "notebooks",
            "spacy",
            "tpu",
            "wandb",
        ):  # not in the tested environment
            lines += wanted
    for requirement in map(Requirement, lines):
        if requirement.name != project["name"]:
            pin = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin), f"{requirement}: {pin}"


def test_requirements_files_that_are_named_are_there():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("ckl_jax/cli/*.py")]:
        for name in re.findall(r"requirements[-\w]*\.txt", path.read_text()):
            assert (ROOT / name).is_file(), f"{path} names {name}"
    pinned = [line for line in requirement_lines("requirements-t5x.txt") if "git+" in line]
    assert len(pinned) == 3 and all(re.search("@[0-9a-f]{40}$", line) for line in pinned)


def test_help_is_quick_and_light():
    for module in ("ckl_jax.cli.t5x", "ckl_jax.cli.ckl"):
        code = (
            f"import sys; from {module} import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "heavy = {'jax', 'tensorflow', 'gin', 'numpy', 'seqio'} & set(sys.modules)\n"
            "sys.exit(f'imported {heavy}' if heavy else 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_long_calls_pass_by_name():
    for path in files("ckl_jax"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert len(node.args) < 8, f"{path}:{node.lineno}: pass arguments by name"


def test_documents_name_no_machine():
    pattern = re.compile(r"/(work|root|tmp/bash)/")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        assert not pattern.search(path.read_text()), path


def is_ours(path):
    return not {".venv", ".git", "build", "runs"} & set(path.relative_to(ROOT).parts)


MARKDOWN = [path for path in ROOT.rglob("*.md") if is_ours(path)]


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_point_to_something(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path}: {link}"
        assert not anchor or anchor in anchors(target), f"{path}: {link}"


def test_pages_that_files_name_are_there():
    for path in ROOT.rglob("*"):
        if path.suffix not in (".py", ".gin", ".toml", ".txt", ".md") or not is_ours(path):
            continue
        for name in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text()):
            assert (ROOT / name).is_file(), f"{path} names {name}"


def test_modules_that_files_name_are_there():
    """`data.tasks.epochs` in a page or docstring: names of the rooms that have modules alone."""
    package = ROOT / "ckl_jax"
    rooms = "|".join(("analysis", "checkpoints", "data", "optim", "parallel", "trees", "world"))
    names = re.compile(rf"`(?:ckl_jax\.)?((?:{rooms})(?:\.(?!html|json)[a-z_]+)+)\b")
    for path in ROOT.rglob("*"):
        if path.suffix not in (".py", ".gin", ".md") or not is_ours(path):
            continue
        for name in names.findall(path.read_text()):
            folder = package
            for part in name.split("."):
                if (folder / f"{part}.py").exists():
                    break
                folder /= part
                assert folder.is_dir(), f"{path} names {name}"


def test_every_page_is_in_the_index():
    docs = ROOT / "docs"
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in docs.rglob("README.md")
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    }
    assert not {p for p in docs.rglob("*.md") if p.name != "README.md"} - linked

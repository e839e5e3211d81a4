"""Rules of the house: who may import whom, and that the requirements files say what is true."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"tensorflow", "seqio", "tensorflow_datasets", "tensorflow_text", "clu"}

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
    "ckl_jax/jobs": {"torch", "pickle", "tensorflow"},
    "ckl_jax": {"torch", "pickle", "t5x"},
}
# The one module that may need T5X; it is for T5X's own command line, and nothing imports it.
BRIDGE = ROOT / "ckl_jax" / "upstream.py"
# room -> rooms of ours that it must not import
ABOVE = {
    "models": {"methods", "data", "probes", "jobs", "checkpoints", "analysis", "world", "cli"},
    "optim": {"models", "methods", "data", "probes", "jobs", "analysis", "world", "cli"},
    "trees": {"models", "methods", "data", "probes", "jobs", "analysis", "world", "cli"},
    "methods": {"probes", "jobs", "checkpoints", "analysis", "world", "cli"},
    "data": {"models", "methods", "probes", "jobs", "checkpoints", "analysis", "world", "cli"},
    "world": {"models", "methods", "probes", "jobs", "checkpoints", "analysis", "cli"},
    "analysis": {"models", "methods", "jobs", "checkpoints", "cli"},
    "probes": {"methods", "jobs", "checkpoints", "analysis", "world", "cli"},
    "jobs": {"cli"},
}


def imports(path):
    """Absolute names that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(room):
    found = sorted((ROOT / room).rglob("*.py"))
    assert found, f"{room} has no module: mend this test"
    return found


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_nothing_forbidden(room):
    for path in files(room):
        names = set(imports(path))
        assert "ckl_jax.upstream" not in names, path
        tops = {name.split(".")[0] for name in names} - ({"t5x"} if path == BRIDGE else set())
        assert not tops & FORBIDDEN[room], f"{path}: {tops & FORBIDDEN[room]}"


@pytest.mark.parametrize("room", ABOVE)
def test_rooms_import_only_rooms_below_them(room):
    for path in files(f"ckl_jax/{room}"):
        rooms = {n.split(".")[1] for n in imports(path) if n.startswith("ckl_jax.")}
        assert not rooms & ABOVE[room], f"{path}: {rooms & ABOVE[room]}"


def test_models_and_methods_open_no_files():
    for room in ("models", "methods", "optim", "trees"):
        for path in files(f"ckl_jax/{room}"):
            calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            names = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
            assert not names & {"open", "exec", "eval"}, path


def test_only_tasks_imports_seqio():
    for path in ROOT.glob("**/*.py"):
        relative = path.relative_to(ROOT)
        if relative.parts[0] in ("tasks", "tests", ".venv", "build"):
            continue
        assert "seqio" not in {name.split(".")[0] for name in imports(path)} or (
            relative
            in (
                Path("ckl_jax/jobs/processes.py"),  # adds cache folders if it is installed
                Path("ckl_jax/t5x_api/seqio_data.py"),  # T5X's gin files name SeqIO's own tasks
                Path("benchmarks/upstream.py"),  # T5X's own model takes SeqIO's vocabulary
            )
        ), path


def requirement_lines(name):
    lines = (ROOT / name).read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and line[0] not in "#-"}


def test_requirements_files_equal_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirement_lines("requirements-core.txt") == set(project["dependencies"])
    assert requirement_lines("requirements.txt") == set(project["optional-dependencies"]["seqio"])


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


def test_documents_name_no_machine():
    pattern = re.compile(r"/(work|root|tmp/bash)/")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        assert not pattern.search(path.read_text()), path

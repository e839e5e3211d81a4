"""Executes the notebooks of a folder, each in an empty one: their outputs, CPU time and memory.

`make notebooks` runs it in an environment that has the package as a wheel, outside the checkout.
The install cell runs too, with the wheel in place of `..`.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# A last cell, which is not kept.
LAST = "import sys; print('tensorflow' in sys.modules)"


def execute(path: Path, folder: Path, package: str | None) -> nbformat.NotebookNode:
    """The notebook with its outputs; without a package its install cell is left out."""
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if "%pip" in cell.source:
            new = cell.source.replace('PACKAGE = ".."', f"PACKAGE = {package!r}")
            cell.source = new if package else ""
    notebook.cells.append(nbformat.v4.new_code_cell(LAST))
    options = {"timeout": 900, "coalesce_streams": True}
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, resources=resources, **options).execute()
    (said,) = notebook.cells.pop().outputs
    if said.text.strip() != "False":
        raise SystemExit(f"{path}: TensorFlow was imported.")
    for cell, source in zip(notebook.cells, sources, strict=True):
        cell.source = source
    return notebook


def measure(path: Path, out: Path, package: str | None) -> dict[str, float]:
    """Executes one; call it once in a process, whose children are those of the notebook."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(path, Path(folder), package), out / path.name)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mib": round(used.ru_maxrss / 1024),  # of its largest process
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--package", help="wheel that the notebooks install")
    parser.add_argument("--out", type=Path, required=True, help="folder for executed notebooks")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if len(args.notebooks) == 1:
        print(json.dumps(measure(args.notebooks[0], args.out, args.package)))
        return
    found = {}
    options = ["--out", args.out, *(["--package", args.package] if args.package else [])]
    for path in args.notebooks:
        command = [sys.executable, __file__, path, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found[path.stem] = json.loads(done.stdout.splitlines()[-1])
        print(path.stem, found[path.stem], flush=True)
    versions = {name: importlib.metadata.version(name) for name in ("ckl-jax", "jax", "pandas")}
    made = {"python": sys.version.split()[0], **versions, "cores": os.cpu_count()}
    text = json.dumps({"notebooks": found, "versions": made}, indent=1) + "\n"
    (args.out / "measured.json").write_text(text)


if __name__ == "__main__":
    main()

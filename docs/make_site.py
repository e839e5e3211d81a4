"""Makes the site of the documentation: `make docs`, with mkdocs-material and mkdocstrings.

Pages lie there as they do in the repository, so that links among them hold. The navigation is
docs/README.md, the index. Warnings are errors: a link to what is not there stops the build.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "docs"
SOURCE = BUILD / "source"
API = "api.md"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # colors of a terminal
SECTION = re.compile(r"^## (.+?)(?: \(.*)?$", re.M)
PUBLIC = {
    "ckl_jax": [
        "ckl_jax.api",
        "ckl_jax.jobs",
        "ckl_jax.cli.ckl.command",
        "ckl_jax.errors.UserError",
    ],
    "LM-PUB-QUIZ": [
        "ckl_jax.data.facts.relational.Dataset",
        "ckl_jax.papers.lm_pub_quiz.ranking.Evaluator",
        "ckl_jax.papers.lm_pub_quiz.ranking_results.DatasetResults",
        "ckl_jax.papers.lm_pub_quiz.ranking_results.RelationResult",
        "ckl_jax.papers.lm_pub_quiz.settings.Settings",
        "ckl_jax.papers.lm_pub_quiz.trainer_callback.PubQuizCallback",
    ],
    "The record of a method": ["ckl_jax.methods.method.Method"],
    "The record of a probe set": ["ckl_jax.data.facts.probe.Probe"],
}
CONFIG = """\
site_name: ckl_jax
docs_dir: source
site_dir: site
theme:
  name: material
  palette:
    - {media: "(prefers-color-scheme: light)", scheme: default}
    - {media: "(prefers-color-scheme: dark)", scheme: slate}
  features: [navigation.tabs, navigation.top, content.code.copy]
  font: false
markdown_extensions:
  - tables
  - pymdownx.superfences
  - pymdownx.highlight
  - toc:
      permalink: true
      slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}
plugins:
  - search
  - mkdocstrings:
      handlers:
        python:
          paths: [%s]
          options:
            docstring_style: google
            docstring_options: {warn_unknown_params: false, warn_missing_types: false}
            show_source: false
            show_root_heading: true
            separate_signature: true
            members_order: source
validation:
  omitted_files: info
  links: {not_found: warn, anchors: warn, unrecognized_links: warn}
nav: %s
"""


def main() -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("examples/**/*.md"))
    for page in [*pages, ROOT / "benchmarks" / "README.md"]:
        _write(page, LINK.sub(lambda m, at=page: _link(m[1], at), page.read_text()))
    for notebook in sorted(ROOT.glob("notebooks/*.ipynb")):
        _write_notebook(notebook)
    blocks = (f"## {title}\n\n" + _blocks(names) for title, names in PUBLIC.items())
    _write(ROOT / "docs" / API, "# API\n\n" + "\n".join(blocks))
    config = CONFIG % (json.dumps(str(ROOT)), json.dumps(_navigation()))
    (BUILD / "mkdocs.yml").write_text(config)
    command = ["-m", "mkdocs", "build", "--strict", "--config-file", BUILD / "mkdocs.yml"]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    problems = (line for line in done.stderr.splitlines() if not line.startswith(("INFO", "  - ")))
    print("\n".join(problems) if done.returncode else BUILD / "site" / "index.html")
    return done.returncode


def _write(page: Path, text: str) -> None:
    target = SOURCE / page.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _link(link: str, page: Path) -> str:
    """Where a link of a page goes in the site; a file that is no page is copied."""
    target = (page.parent / link).resolve()
    if target.is_dir():
        return f"{link.rstrip('/')}/README.md" if (target / "README.md").exists() else "#"
    if target.suffix == ".ipynb":
        return link.replace(".ipynb", ".md")
    if target.is_file() and target.suffix != ".md":
        copy = SOURCE / target.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(target, copy)
    return link


def _write_notebook(notebook: Path) -> None:
    """A notebook as a page: with outputs, if `make notebooks` has executed it."""
    executed = ROOT / "build" / "notebooks" / notebook.name
    cells = json.loads((executed if executed.exists() else notebook).read_text())["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()) if "%pip" not in text else ():
            parts.append(_output(output, notebook.with_name(f"{notebook.stem}_{len(parts)}.png")))
    _write(notebook.with_suffix(".md"), "\n\n".join(parts) + "\n")


def _output(output: dict, image: Path) -> str:
    data = {kind: "".join(value) for kind, value in output.get("data", {}).items() if value}
    if "image/png" in data:
        target = SOURCE / image.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the cell draws]({image.name})"
    if "<table" in data.get("text/html", ""):
        return re.sub(r"\n\s*", "", re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.S))
    text = ESCAPES.sub("", data.get("text/plain", "".join(output.get("text", ()))))
    lines = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


def _blocks(names: list[str]) -> str:
    filtered = '    options:\n      filters: ["!^_", "!^Folder$"]\n'
    return "\n".join(f"::: {name}\n{filtered}" for name in names)


def _navigation() -> list:
    """[{section: [pages]}] of the index."""
    text = (ROOT / "docs" / "README.md").read_text()
    _, *parts = SECTION.split(text)
    found: list = [{"ckl_jax": ["README.md", "docs/README.md"]}]
    for title, part in zip(parts[::2], parts[1::2], strict=True):
        links = [(ROOT / "docs" / link).resolve() for link in LINK.findall(part)]
        folders = [p.parent for p in links if p.name == "README.md" and p.parent != ROOT]
        links += [page for folder in folders for page in sorted(folder.glob("*.md"))]
        pages = [str(p.relative_to(ROOT)) for p in links if p.suffix == ".md"]
        found.append({title: [p for p in dict.fromkeys(pages) if p != "README.md"]})
    notebooks = [f"notebooks/{p.stem}.md" for p in sorted(ROOT.glob("notebooks/*.ipynb"))]
    return [*found, {"Notebooks": notebooks}, {"API": [f"docs/{API}"]}]


if __name__ == "__main__":
    sys.exit(main())

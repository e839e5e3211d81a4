"""Size and shape of code, of this package and of others: one table.

    python -m benchmarks.code_metrics ckl_jax=ckl_jax optax=/path/to/optax/optax

Each argument is NAME=FOLDER. Test files are left out. Lengths are lines: of a module all of them,
of a function its body without the docstring. Complexity is radon's cyclomatic complexity
(`pip install radon`); D begins at 21.
"""

import argparse
import ast
import io
import statistics
import tokenize
from pathlib import Path

POSITIONAL = 8  # a call with so many arguments by position has to be counted to be read


def measure(folder: Path) -> dict[str, object]:
    """The numbers of one package.

    Args:
      folder: whose `*.py` are measured, tests excepted.
    """
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
        if "test" not in path.stem and "tests" not in path.parts
    ]
    texts = [text for text in texts if _parses(text)]
    trees = [ast.parse(text) for text in texts]
    functions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    public = [f for f in functions if not f.name.startswith("_")]
    arguments = [a for f in functions for a in _arguments(f)]
    lines = sum(text.count("\n") for text in texts)
    modules = [text.count("\n") for text in texts if text.strip()]
    bodies = [_body_lines(f) for f in functions]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        "modules": len(modules),
        "lines": lines,
        "module median / p90": _spread(modules),
        "function median / p90": _spread(bodies),
        "docstrings": _percent(map(ast.get_docstring, public)),
        "annotated arguments": _percent(a.annotation for a in arguments),
        "comments per 100 lines": f"{100 * sum(map(_comments, texts)) / lines:.1f}",
        f"calls with {POSITIONAL}+ by position": sum(len(c.args) >= POSITIONAL for c in calls),
        "complexity D or worse": _complex(texts),
    }


def _parses(text: str) -> bool:
    """Whether it is Python; some examples of others are not."""
    try:
        return bool(ast.parse(text))
    except SyntaxError:
        return False


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [a for a in every if a.arg not in ("self", "cls")]


def _body_lines(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def _comments(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def _complex(texts: list[str]) -> int | str:
    try:
        from radon.complexity import cc_visit
    except ImportError:
        return "radon is not installed"
    return sum(block.complexity > 20 for text in texts for block in cc_visit(text))


def _spread(values: list[int]) -> str:
    return f"{statistics.median(values):.0f} / {statistics.quantiles(values, n=10)[-1]:.0f}"


def _percent(values) -> str:
    values = [bool(value) for value in values]
    return f"{100 * sum(values) / max(1, len(values)):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="+", metavar="NAME=FOLDER")
    pairs = [package.partition("=") for package in parser.parse_args().packages]
    for name, _, folder in pairs:
        if not folder or not any(Path(folder).rglob("*.py")):
            parser.error(f"{name}={folder}: no Python files there; give NAME=FOLDER of a package")
    columns = {name: measure(Path(folder)) for name, _, folder in pairs}
    print("| | " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for row in next(iter(columns.values())):
        cells = (f"{c[row]:,}" if isinstance(c[row], int) else c[row] for c in columns.values())
        print(f"| {row} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

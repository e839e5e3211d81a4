"""Pages of names and texts that would be elements, attributes, styles or formulas."""

import collections
import html.parser
import json
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

from ckl_jax.analysis import figures
from ckl_jax.cli import ckl
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.papers.temporalwiki.analysis.report import write_report
from tests.analysis.helpers import make_run
from tests.papers.mind_the_gap.analysis.dumps import write_scored
from tests.papers.temporalwiki.analysis.temporalwiki_study import write_study

EVIL = '</style><script>a()</script><img src=x onerror=a()>" onmouseover="a()$\\frac{$'


class _Elements(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.names, self.attributes = collections.Counter(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def assert_harmless(page, figures=True):
    """The script is ours; EVIL is shown, and is no element and no attribute."""
    text = page.read_text()
    found = _Elements(text)
    assert found.names["script"] == 1 and not found.names["img"]
    assert not [name for name in found.attributes if name.startswith("on")]
    assert "&lt;script&gt;" in text and bool(found.names["svg"]) == figures


@pytest.fixture(autouse=True)
def pages_alone(monkeypatch):
    """Figures are drawn as SVG alone, as pages show them, and not laid out: the texts stay."""
    draw = Figure.savefig

    def savefig(self, file, **options):
        if options["format"] == "svg":
            draw(self, file, **options)
        else:
            file.write(b"PNG")

    monkeypatch.setattr(Figure, "savefig", savefig)
    monkeypatch.setitem(figures._STYLE, "figure.constrained_layout.use", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name as long as that leaves figures no place
        yield


def test_temporalwiki(tmp_path):
    write_study(tmp_path, count=2)
    for path in tmp_path.rglob("*.json*"):
        text = path.read_text()
        for old in ('"r"', '"m"', '"mayor"', '"club"', '"s r"', '"o"', '"unchanged 3"'):
            text = text.replace(old, json.dumps(EVIL + old.strip('"')))
        text = text.replace(": enwiki-", f": {json.dumps(EVIL)[1:-1]}")
        path.write_text(text)
    assert_harmless(write_report(tmp_path))


def test_seeds(tmp_path):
    folders = [tmp_path / f'{i} <script>a()<img src=x onerror=a()>" onmouseover="a()' for i in "ab"]
    for folder in folders:
        for name in ("initial", "vanilla"):
            make_run(folder, name)
        for path in [*folder.rglob("*.json*")]:
            path.write_text(path.read_text().replace('"vanilla"', json.dumps(EVIL)))
    argv = ["report", "--seeds", *map(str, folders), "--out", str(tmp_path / "out")]
    assert ckl.main(argv) == 0
    assert_harmless(tmp_path / "out" / "seeds.html", figures=False)
    assert "of Initial.</p>" in (tmp_path / "out" / "seeds.html").read_text()
    assert "</style><script>a" in (tmp_path / "out" / "seeds.json").read_text()


def test_staleness(tmp_path):
    generator = np.random.default_rng(0)
    texts = [
        (f"2019-{month:02d}-{day:02d}", [f"w{generator.integers(9)}", EVIL, "zoom"])
        for month in range(1, 4)
        for day in range(1, 29, 3)
    ]
    rise = {name: (lambda d, w, x=x: 20 + x * int(d[5:7])) for name, x in (("a", 1), ("b", 0))}
    dumps = {name: write_scored(tmp_path / name, texts, cost) for name, cost in rise.items()}
    write_documents(tmp_path / "train.jsonl", [Document("d", "2018-01-01", EVIL, "w1 w2 " * 9)])
    argv = ["--model", f"{EVIL.replace('=', '')}={dumps['a']}", "--control", dumps["b"]]
    argv += ["--train", str(tmp_path / "train.jsonl"), "--emerging-min-count", "5"]
    assert ckl.main(["staleness", *argv, "--out", str(tmp_path / "out")]) == 0
    assert_harmless(tmp_path / "out" / "report.html")


def test_what_a_terminal_would_act_on_is_shown_as_an_escape(tmp_path, capsys):
    for name in ("initial", "lora"):
        make_run(tmp_path, name)
    for rows in tmp_path.glob("*/probes/rows_*.jsonl"):
        rows.write_text(
            "".join(
                json.dumps({**json.loads(line), "input": "\x1b[31m\a_X_", "relation": "\x9bP"})
                + "\n"
                for line in rows.read_text().splitlines()
            )
        )
    assert ckl.main(["ledger", str(tmp_path / "lora"), "--initial", str(tmp_path / "initial")]) == 0
    assert r"\x1b[31m\x07_X_" in (shown := capsys.readouterr().out)
    assert ckl.main(["report", str(tmp_path / "lora"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert r"\x1b[31m\x07_X_" in page
    assert not {"\x1b", "\a", "\x9b"} & {*shown, *page, *capsys.readouterr().out}
    argv = ["ledger", str(tmp_path / "lora"), "--initial", str(tmp_path / "initial"), "--json"]
    assert ckl.main(argv) == 0
    assert "\x9b" not in (told := capsys.readouterr().out)
    assert json.loads(told)["facts"][0]["relation"] == "\x9bP"
    assert ckl.main(["report", str(tmp_path / "lora\x1b[31m")]) == 2
    assert r"lora\x1b[31m" in capsys.readouterr().err

import html.parser
import json
import re
import shutil
import sys
import warnings

import pytest

from ckl_jax import api
from ckl_jax.analysis import labels, ledger
from ckl_jax.analysis.bases import bases_of
from ckl_jax.analysis.changes import date_table, pick_examples
from ckl_jax.analysis.main_table import best, compute_table, fuar_tasks, section
from ckl_jax.analysis.report import find_runs, write_report
from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.analysis.sections import Section, compact
from ckl_jax.analysis.seeds import compare_seeds, of_demos
from ckl_jax.analysis.study import load_study
from ckl_jax.cli import ckl
from ckl_jax.data.facts.ckl_files import known_probe
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import UserError
from ckl_jax.files import checkpoint_digest, write_json
from ckl_jax.probes.forgetting import fuar
from tests.analysis.helpers import METHODS, make_demo, make_run
from tests.tiny import read_rows

FIGURES = {
    "curves",
    "balance",
    "cost",
    "ledger",
    "precision_at_k",
}
VOID = {"meta", "img", "br"}


class Balanced(html.parser.HTMLParser):
    """Checks that every element is closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids = [], set(), set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        self.links.add(attrs.get("href") or attrs.get("src") or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def study(demo):
    return load_study(find_runs([demo]))


@pytest.fixture(scope="module")
def report(demo, tmp_path_factory):
    return write_report(find_runs([demo]), tmp_path_factory.mktemp("report"))


def test_find_runs_puts_initial_first(demo):
    assert [p.name for p in find_runs([demo])] == list(METHODS)
    lora = demo / "lora"
    assert find_runs([lora, demo / "vanilla", demo / "vanilla" / ".." / "lora"]) == [
        lora,
        demo / "vanilla",
    ]
    with pytest.raises(UserError, match="holds no run"):
        find_runs([demo / "lora" / "probes"])


def test_the_report_is_one_well_formed_page_that_needs_nothing_else(report):
    text = report.read_text()
    page = Balanced(text)
    outside = [x for x in page.links if x and not x.startswith("#")]
    assert outside == []
    assert {x[1:] for x in page.links if x.startswith("#")} <= page.ids
    assert "Subject 0 &lt;of&gt; invariant_lama" in text
    assert not re.search(r">\s*(nan|inf|None)\s*<", text)


def test_figures_are_written_and_embedded(report):
    files = {p.stem: p.read_bytes() for p in (report.parent / "figures").iterdir()}
    assert set(files) == FIGURES
    assert all(png.startswith(b"\x89PNG") for png in files.values())
    drawn = re.findall("<figure.*?<svg(.*?)</svg>", report.read_text(), re.DOTALL)
    assert len(drawn) == len(FIGURES)
    assert all("<text" in svg and "DejaVu Sans" in svg for svg in drawn)  # text, and no outlines
    narrow = re.findall('<svg[^>]* width="([0-9.]+)pt"[^>]* class="narrow"', report.read_text())
    assert len(narrow) == len(FIGURES) and all(float(width) < 320 for width in narrow)


def test_the_table_is_made_of_the_rows(report, study):
    table = json.loads((report.parent / "table.json").read_text())["em"]
    assert [row["label"] for row in table["rows"]][:2] == ["Initial", "Vanilla"]
    assert table["fuar"] == "((IL), UL, NL)"
    initial, vanilla = table["rows"][:2]
    for entry, row in zip(study.entries, table["rows"], strict=True):
        for probe, score in row["scores"].items():
            em = entry.scores[probe].em
            assert score["value"] == pytest.approx(100 * em.mean())
            assert score["right"] == em.sum()
            assert score["low"] <= score["value"] <= score["high"]
    before, after = ({p: s["value"] for p, s in r["scores"].items()} for r in (initial, vanilla))
    expected = fuar([before, after], ["invariant_lama"], "updated_lama", "new_lama")
    assert vanilla["fuar"]["value"] == pytest.approx(expected.value)
    assert initial["fuar"] is None and initial["cpu_seconds"] is None
    assert vanilla["tests"] == {} and initial["tests"] == {}


def test_best_and_second_best_are_marked(study):
    table = compute_table(study, samples=50)
    assert best(table, "invariant_lama") == {"modular": 1, "k_adapter_k3": 2}
    assert best(table, "fuar")["modular"] == 1
    assert best(table, "cpu_seconds") == {}
    marked = section(table).markdown()
    value = next(r for r in table["rows"] if r["key"] == "modular")["scores"]["invariant_lama"]
    assert f"**{value['value']:.2f}**" in marked and "**80.00**" not in marked


def test_differences_from_vanilla_are_tested(study):
    table = compute_table(study)
    rows = {row["key"]: row for row in table["rows"]}
    modular = rows["modular"]["tests"]
    assert modular["invariant_lama"]["p_holm"] < 0.01
    assert modular["invariant_lama"]["difference"] == pytest.approx(35.0)
    assert all(t["p"] <= t["p_holm"] <= 1 for row in rows.values() for t in row["tests"].values())
    assert modular["fuar"]["p_holm"] < 0.05
    shown = section(table)
    marks = [cell.mark for cell in shown.rows[1]]
    assert not any(marks) and len(shown.headers) == len(shown.rows[0])


def test_examples_show_each_kind(study):
    kinds = {(e.probe, e.kind) for e in pick_examples(study)}
    assert ("invariant_lama", "forgotten") in kinds and ("invariant_lama", "kept") in kinds
    assert ("updated_lama", "updated") in kinds and ("updated_lama", "stale") in kinds
    assert ("new_lama", "learned") in kinds
    assert all(len(e.predictions) == len(study.entries) for e in pick_examples(study))


@pytest.mark.parametrize(
    ("probes", "notation"),
    [
        ("invariant_lama updated_lama new_lama new_lama_easy", "((IL), UL, NL)"),
        ("invariant_lama new_lama_easy_p1 new_lama_easy_p2", "((IL), n.d., NLE-P1 & NLE-P2)"),
        ("invariant_lama new_lama_easy_p1", "((IL), n.d., NLE-P1)"),
        ("invariant_lama updated_lama", "((IL), UL, n.d.)"),
    ],
)
def test_fuar_follows_the_probes(probes, notation):
    assert fuar_tasks(map(known_probe, probes.split())).notation == notation


@pytest.mark.usefixtures("undrawn")
def test_the_new_knowledge_of_fuar_can_be_chosen(tmp_path, capsys):
    probes = ["invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"]
    records = [known_probe(name) for name in probes]
    assert fuar_tasks(records, probes[2:]).notation == "((IL), n.d., NLE-P2)"
    with pytest.raises(UserError, match="not put to 'new_lama_easy_p3'.*Did you mean"):
        fuar_tasks(records, ["new_lama_easy_p3"])
    make_demo(tmp_path, ("initial", "lora"), sizes=dict.fromkeys(probes, 30))
    assert ckl.main(["report", str(tmp_path), "--acquired", "new_lama_easy_p2"]) == 0
    table = json.loads((tmp_path / "table.json").read_text())["em"]
    assert table["fuar"] == "((IL), n.d., NLE-P2)"


@pytest.mark.parametrize("probes", ["invariant_lama", "new_lama updated_lama"])
def test_fuar_is_not_defined_without_both_sides(probes):
    assert fuar_tasks(map(known_probe, probes.split())) is None


@pytest.mark.usefixtures("undrawn")
def test_missing_pieces_are_left_out_with_a_note(tmp_path, capsys):
    sizes = {"invariant_lama": 20, "new_lama": 20}
    make_run(tmp_path, "initial", sizes=sizes, wide=False)
    lora = make_run(tmp_path, "lora", sizes=sizes, wide=False)
    (lora / "summary.json").unlink()
    (lora / "config.gin").unlink()
    (tmp_path / "modular").mkdir()
    runs = [tmp_path / name for name in ("initial", "lora", "modular")]
    text = write_report(runs, tmp_path / "out").read_text()
    Balanced(text)
    assert "Modular: not probed yet, so it is left out." in text and "LoRA: not finished" in text
    assert "n.d." in text and not (tmp_path / "out" / "figures" / "precision_at_k.png").exists()
    assert "Modular: not probed yet, so it is left out." in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_reports_of_one_run(tmp_path):
    make_run(tmp_path, "initial", sizes={"new_lama": 5})
    Balanced(write_report([tmp_path / "initial"], tmp_path / "a").read_text())
    make_run(tmp_path, "lora", sizes={"new_lama": 5})
    text = write_report([tmp_path / "lora"], tmp_path / "b").read_text()
    Balanced(text)
    assert "1 updated model on NewLAMA (NL, 5)." in text
    assert "What probes ask, for example: NewLAMA, “" in text


def test_runs_on_different_items_are_refused(demo, tmp_path):
    other = make_run(tmp_path, "lora", sizes={"invariant_lama": 7})
    with pytest.raises(UserError, match="different items of invariant_lama"):
        load_study([demo / "initial", other])


def _set(run, **changes):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, **changes}))


def _rebase(run, base):
    _set(run, base_checkpoint=str(base))


def test_runs_of_different_initial_models_are_refused(tmp_path):
    a, b = (make_demo(tmp_path / str(s), ("initial", "lora"), seed=s) for s in range(2))
    with pytest.raises(UserError, match="1/lora started from .*1/initial, but .*0/initial is ano"):
        load_study([*find_runs([a]), b / "lora"])
    with pytest.raises(UserError, match="1/lora started from .*1/initial, but .*0/lora started"):
        load_study([a / "lora", b / "lora"])
    _rebase(a / "lora", tmp_path / "gone" / "initial")  # it was moved
    assert load_study([a / "initial", a / "lora"]).initial
    _rebase(a / "lora", tmp_path / "gone" / "other")  # and had another name, but answers alike
    assert load_study([a / "initial", a / "lora"]).initial
    _rebase(b / "lora", tmp_path / "gone" / "other")
    with pytest.raises(UserError, match="gone/other, which is not there, .* call it other again"):
        load_study([a / "initial", b / "lora"])
    # Where both are gone, a name in common is no evidence against answers that differ.
    for demo in (a, b):
        shutil.rmtree(demo / "initial")
    _rebase(a / "lora", tmp_path / "x" / "initial")
    _rebase(b / "lora", tmp_path / "z" / "initial")
    with pytest.raises(UserError, match="z/initial, but .*0/lora started from .*x/initial"):
        load_study([a / "lora", b / "lora"])
    _not_probed(b / "lora", 300_000, tmp_path / "z" / "initial")  # a random side network?
    assert load_study([a / "lora", b / "lora"]).notes == (
        f"LoRA ({b}/lora) says that it started from {tmp_path}/z/initial, which is taken for a "
        f"copy of {tmp_path}/x/initial; the answers of the two do not show it.",
    )
    for demo, digest in ((a, "12"), (b, "34")):  # of the checkpoints that they started from
        _set(demo / "lora", base_digest=digest)
    with pytest.raises(UserError, match="z/initial, but .*0/lora started from .*x/initial"):
        load_study([a / "lora", b / "lora"])
    _set(b / "lora", base_digest="12")
    assert not load_study([a / "lora", b / "lora"]).notes


def test_a_namesake_beside_a_run_is_its_base_if_it_holds_that_checkpoint(tmp_path):
    demo = make_demo(tmp_path, ("initial", "lora"))
    record = demo / "initial" / "checkpoint_4" / "metadata" / "metadata"
    write_json(record, {"sha256": {"target/embedding": "of one model"}})
    _rebase(demo / "lora", tmp_path / "gone" / "initial")
    assert bases_of(ProbedRun.open(demo / "lora"))[0].source
    _set(demo / "lora", base_digest=checkpoint_digest(demo / "initial" / "checkpoint_4"))
    assert bases_of(ProbedRun.open(demo / "lora"))[0].source
    write_json(record, {})  # of a version that recorded none
    assert bases_of(ProbedRun.open(demo / "lora"))[0].source
    write_json(record, {"sha256": {"target/embedding": "of another"}})
    assert not bases_of(ProbedRun.open(demo / "lora"))[0].source


def test_a_copy_of_a_demo_and_a_second_phase_have_one_initial_model(tmp_path):
    demo = make_demo(tmp_path / "a", ("initial", "vanilla", "lora"))
    shutil.copytree(demo, tmp_path / "b")
    assert load_study([tmp_path / "b" / "initial", demo / "lora", tmp_path / "b" / "vanilla"])
    _rebase(demo / "lora", demo / "vanilla" / "checkpoint_20")
    expected = load_study([demo / "initial"]).initial.scores["new_lama"].em
    for names in (("initial", "vanilla", "lora"), ("vanilla", "lora"), ("lora", "vanilla")):
        found = load_study([demo / name for name in names])
        assert (found.initial.scores["new_lama"].em == expected).all()
        assert len(found.methods) == 2


def _not_probed(run, added, base="/gone/hf/checkpoint_0"):
    """As if the model that a run started from had not been probed."""
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"base_checkpoint": str(base), "added_parameters": added}
    summary["total_parameters"] += added
    (run / "summary.json").write_text(json.dumps(summary))


@pytest.mark.usefixtures("undrawn")
def test_a_random_side_network_is_no_part_of_initial(tmp_path):
    demo = make_demo(tmp_path, ("initial", "vanilla", "k_adapter_k2"))
    expected = load_study([demo / "initial"]).initial.scores["new_lama"].em
    rows = demo / "k_adapter_k2" / "probes" / "rows_000000.jsonl"
    noisy = [{**row, "em": 0} for row in read_rows(rows)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in noisy))
    adapter, vanilla = demo / "k_adapter_k2", demo / "vanilla"

    def initial(*runs):
        study = load_study(runs)
        return study.initial.scores["new_lama"].em, " ".join(study.notes)

    assert (initial(adapter)[0] == expected).all()  # its base was probed
    _not_probed(adapter, 300_000)
    _not_probed(vanilla, 0)
    for order in ((adapter, vanilla), (vanilla, adapter)):
        assert (initial(*order)[0] == expected).all()
        assert "before its first step" not in initial(*order)[1]
    scores, notes = initial(adapter)
    assert not scores.any()
    told = "K-Adapter (k=2) before its first step, with 300,000 parameters"
    assert told in notes
    write_report([adapter], tmp_path / "report")
    assert told in (tmp_path / "report" / "table.md").read_text()
    with pytest.warns(UserWarning, match=re.escape(told)):
        ledger.rows(adapter)
    with pytest.warns(UserWarning) as shown:
        assert ckl.main(["ledger", str(adapter)]) == 0
    assert [told in str(one.message) for one in shown] == [True]  # once
    with pytest.warns(UserWarning, match=re.escape(told)):
        api.compare([adapter])
    (adapter / "summary.json").unlink()  # it is still trained
    assert not initial(adapter)[0].any()
    assert "before its first step, with what the method added" in initial(adapter)[1]
    for order in ((adapter, vanilla), (vanilla, adapter)):
        assert (initial(*order)[0] == expected).all()
    base = f"INITIAL_CHECKPOINT_PATH = \\\n    '{demo / 'initial'}'\nMODEL_DIR = '{adapter}'\n"
    for text in (base, base.replace(f"{tmp_path}/", "")):
        (adapter / "config.gin").write_text(text)
        assert (initial(adapter)[0] == expected).all()
        assert "before its first step" not in initial(adapter)[1]


STRANGERS = (
    Probe(name="capitals", short="CAP", long="Capitals", role="retained", order=-2),
    Probe(name="mayors", short="MAY", role="updated", columns=("starts_alike",)),
    Probe(name="clubs", short="CLUB", role="acquired", group="clubs"),
    Probe(name="teams", short="TEAM", role="acquired", group="clubs", order=101),
)


@pytest.mark.usefixtures("undrawn")
def test_probes_of_a_stranger_are_shown_as_their_records_say(tmp_path, capsys):
    sizes = dict.fromkeys(("invariant_lama", *(r.name for r in STRANGERS)), 30)
    make_demo(tmp_path, ("initial", "lora"), sizes=sizes, records=STRANGERS, wide=False)
    assert ckl.main(["report", str(tmp_path)]) == 0
    table = json.loads((tmp_path / "table.json").read_text())["em"]
    assert table["fuar"] == "((CAP), MAY, CLUB & TEAM)"
    assert table["probes"] == ["capitals", "invariant_lama", "mayors", "clubs", "teams"]
    assert table["rows"][1]["columns"] == {"mayors/starts_alike": 50.0}
    header = (tmp_path / "table.md").read_text().splitlines()[0]
    assert "MAY EM, n = 30 | MAY starts_alike | CLUB EM, n = 30 | TEAM EM, n = 30 | FUAR" in header
    page = (tmp_path / "report.html").read_text()
    assert "<h3>Capitals, EM</h3>" in page and "<td>2012</td><td>10</td>" in page
    assert ckl.main(["ledger", str(tmp_path / "lora"), "--limit", "1"]) == 0
    said = capsys.readouterr().out
    assert said.index("Capitals (30 facts)") < said.index("InvariantLAMA (30 facts)")


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_what_happened_and_has_every_fact(tmp_path):
    sizes = {"invariant_lama": 70, "updated_lama": 50, "new_lama": 40}
    page = write_report(find_runs([make_demo(tmp_path, sizes=sizes)]), tmp_path).read_text()
    table = json.loads((tmp_path / "table.json").read_text())["em"]
    kept = {r["label"]: r["scores"]["invariant_lama"]["value"] for r in table["rows"]}
    before = kept.pop("Initial")
    most, least = (f(kept, key=kept.get) for f in (max, min))
    told = f"{kept[most]:.1f} % right after {most}, {kept[least]:.1f} % after {least}"
    assert f"InvariantLAMA: {told}, {before:.1f} % before." in page
    bounds = {r["label"]: r["fuar"] for r in table["rows"] if r["fuar"]}
    best = min(bounds, key=lambda label: bounds[label]["value"])
    told = f"95 % interval {bounds[best]['low']:.2f} to {bounds[best]['high']:.2f}), which differs"
    assert f"{best} forgot least" in page and f"{told} from Vanilla&#39;s at 0.05" in page
    facts = page[page.index('id="facts"') :]
    assert facts[: facts.index("</table>")].count("<tr>") == 1 + sum(sizes.values())


@pytest.mark.usefixtures("undrawn")
def test_a_method_whose_gain_is_not_sure_does_not_lead(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "lora", (0.80, 0.05, 0.02, 0.10, 0.70))
    demo = make_demo(tmp_path, ("initial", "vanilla", "lora"))
    page = write_report(find_runs([demo]), demo).read_text()
    table = json.loads((demo / "table.json").read_text())["em"]
    vanilla, lora = (row["fuar"] for row in table["rows"][1:])
    assert lora["value"] < vanilla["value"] and lora["high"] is None
    assert "Vanilla forgot least for what it gained" in page
    assert best(table, "fuar") == {}
    shutil.rmtree(demo / "vanilla")
    page = write_report(find_runs([demo]), demo).read_text()
    assert "No method surely gained" in page and "forgot least" not in page


def test_a_method_has_one_colour_on_the_whole_page(tmp_path, monkeypatch):
    for name in ("mine", "yours"):
        monkeypatch.setitem(METHODS, name, METHODS["lora"])
    demo = make_demo(tmp_path, ("initial", "mine", "yours"))
    page = write_report(find_runs([demo]), demo).read_text()
    for position, title in enumerate(("mine", "yours")):
        figures = re.findall("<svg.*?</svg>", page, re.DOTALL)
        with_method = [f for f in figures if f"<title>{title}" in f]
        assert len(with_method) >= 4
        own, other = (labels.color("", (position + i) % 2) for i in range(2))
        assert all(own in f and other in f for f in with_method)
        points = re.findall(rf"fill: (#\w+)[^<>]*>\s*<title>{title}", page)
        assert set(points) == {own}


def test_the_page_of_dates_is_of_probes_with_dates(study):
    assert all(date_table(study, probe) == [] for probe in study.probes)


@pytest.mark.usefixtures("undrawn")
def test_no_gain_is_shown_in_words(tmp_path, capsys):
    make_run(tmp_path, "initial")
    shutil.copytree(tmp_path / "initial", tmp_path / "vanilla")
    summary = json.loads((tmp_path / "vanilla" / "summary.json").read_text())
    summary |= {"run": "vanilla", "base_checkpoint": str(tmp_path / "initial")}
    (tmp_path / "vanilla" / "summary.json").write_text(json.dumps(summary))
    report = write_report(find_runs([tmp_path]), tmp_path)
    assert "no gain" in report.read_text() and "no gain" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_seeds_without_gain_leave_no_mean_and_no_lead(tmp_path, monkeypatch):
    demos = []
    for seed, lora in enumerate([(0.80, 0.05, 0.02, 0.10, 0.70), METHODS["initial"]]):
        monkeypatch.setitem(METHODS, "lora", lora)
        demos.append(make_demo(tmp_path / str(seed), ("initial", "vanilla", "lora"), seed=seed))
    page = compare_seeds(demos, tmp_path, of_demos).read_text()
    rows = {r["key"]: r for r in json.loads((tmp_path / "seeds.json").read_text())["rows"]}
    assert rows["lora"]["columns"]["fuar"]["mean"] is None
    assert rows["vanilla"]["columns"]["fuar"]["mean"] > 0
    assert "<td>no gain in 1 of 2</td>" in page and "NL): " not in page


def test_seeds_are_summarised(tmp_path, capsys):
    demos = [make_demo(tmp_path / str(s), ("initial", "vanilla"), seed=s) for s in range(2)]
    text = compare_seeds(demos, tmp_path, of_demos).read_text()
    Balanced(text)
    rows = json.loads((tmp_path / "seeds.json").read_text())["rows"]
    assert rows[1]["columns"]["invariant_lama"]["mean"] == pytest.approx(35.0)
    assert len(rows[1]["columns"]["fuar"]["values"]) == 2 and "Not in all" not in text
    demos.append(make_demo(tmp_path / "lora", ("initial", "vanilla", "lora"), seed=2))
    assert "Not in all of them: LoRA." in compare_seeds(demos, tmp_path, of_demos).read_text()
    with pytest.raises(UserError, match="at least two"):
        compare_seeds(demos[:1], tmp_path, of_demos)
    with pytest.raises(UserError, match="is the MODEL_DIR of one run; --seeds compares folders"):
        compare_seeds([demos[0], demos[0] / "vanilla"], tmp_path, of_demos)
    with pytest.raises(UserError, match="is given twice"):
        compare_seeds([demos[0], f"{demos[0]}/../{demos[0].name}"], tmp_path, of_demos)


@pytest.mark.usefixtures("undrawn")
def test_the_command_line(demo, tmp_path, capsys):
    for _ in range(2):  # a report of ours may be written again
        assert ckl.main(["report", str(demo), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert ckl.main(["report", str(demo), "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["em"]["metric"] == "em"
    assert ckl.main(["ledger", str(demo / "lora"), "--limit", "1"]) == 0
    assert ckl.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "No folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (40_000, "40k"), (1_312_768, "1.31M"), (3e9, "3B")]
)
def test_compact_numbers(count, text):
    assert compact(count) == text


def test_a_damaged_summary_is_named_and_its_run_not_left_out(tmp_path, capsys):
    for name in ("initial", "vanilla", "lora"):
        make_run(tmp_path, name)
    damaged = tmp_path / "lora" / "summary.json"
    damaged.write_text(damaged.read_text()[:40])
    assert ckl.main(["report", str(tmp_path)]) == 2
    assert f"{damaged}, line 4: not JSON" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("file", ["config.gin", "log.txt"])
def test_a_method_that_has_only_begun_is_noted(tmp_path, capsys, file):
    for name in ("initial", "vanilla"):
        make_run(tmp_path, name)
    for name in ("lora", "data", "figures"):
        (tmp_path / name).mkdir()
    (tmp_path / "lora" / file).write_text("")
    assert ckl.main(["report", str(tmp_path)]) == 0
    expected = "LoRA: not probed yet, so it is left out."
    assert expected in capsys.readouterr().out
    assert expected in (tmp_path / "report.html").read_text()
    assert [p.name for p in find_runs([tmp_path])] == ["initial", "vanilla", "lora"]


def test_names_are_neither_html_nor_formulas(tmp_path):
    evil = "<script>a()</script><img src=x onerror=a()>$\\frac{$"
    demo = make_demo(tmp_path, ("initial", "vanilla"))
    summary = json.loads((demo / "vanilla" / "summary.json").read_text())
    changed = {**summary, "run": evil, "method": evil, "device": evil}
    (demo / "vanilla" / "summary.json").write_text(json.dumps(changed))
    for path in (demo / "vanilla" / "probes").glob("rows_*.jsonl"):
        rows = [{**row, "run": evil, "method": evil} for row in read_rows(path)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name as long as that leaves figures no place
        page = write_report(find_runs([demo]), tmp_path / "out").read_text()
    assert "&lt;script&gt;a()" in page
    assert page.count("<script") == 1 and "<img src=x" not in page


def test_a_file_in_the_way_is_told_before_anything_is_drawn(demo, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert ckl.main(["report", str(demo), "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"ckl: --out is {tmp_path}/file, which is a file")


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_there_before_its_table_is_printed(demo, tmp_path, monkeypatch):
    """What ends with the standard output would else leave files that look like another's."""
    other = make_demo(tmp_path / "other", ("initial", "vanilla", "lora"), seed=1)
    monkeypatch.setattr(Section, "show", lambda *_, **__: sys.exit("nobody reads this"))
    argv = ["report", str(demo), str(other), "--seeds", "--out", str(tmp_path)]
    for _ in range(2):
        with pytest.raises(SystemExit, match="nobody reads this"):
            ckl.main(argv)
        assert (tmp_path / "seeds.html").is_file()

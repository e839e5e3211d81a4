"""The page for reviewing items: what is in the file, and what it does in a real browser."""

import json
import re
import time

import pytest

from ckl_jax.cli import ckl
from ckl_jax.data.facts.ckl_files import BLANK, ProbeItem, read_probe
from ckl_jax.data.facts.ckl_writer import write_probe
from ckl_jax.files import write_jsonl
from ckl_jax.papers.ckl.analysis import review_page
from ckl_jax.papers.ckl.data.review import read_reviewable
from tests.browser import Browser

HOSTILE = (
    "</script><script>document.title='HACKED'</script>"
    "<img src=x onerror=\"document.title='HACKED'\">"
)


def new(i, statement, *answers, **more):
    return ProbeItem(id=str(i), probe="new_lama", input=statement, answers=answers, **more)


@pytest.fixture
def folder(tmp_path):
    """Three items of NewLAMA, the second hostile, and one of UpdatedLAMA, with evidence."""
    out = tmp_path / "probes"
    write_probe(
        "new_lama",
        out,
        [
            new(
                0,
                f"The head of Aland is {BLANK}.",
                "Ann",
                relation="P6",
                question="Who heads Aland?",
            ),
            new(1, f"{HOSTILE} {BLANK}", HOSTILE, meta={"note": HOSTILE}, relation=HOSTILE),
            new(2, f"The mayor of Bland is {BLANK}.", "Bo", "Bob"),
        ],
    )
    updated = ProbeItem(
        id="0",
        probe="updated_lama",
        input=f"The head of Cland is {BLANK}.",
        answers=("New Man",),
        old_answers=("Old Man",),
    )
    write_probe("updated_lama", out, [updated])
    write_jsonl(
        out / "evidence.jsonl",
        [
            {
                "probe": "new_lama",
                "id": "0",
                "side": "D1",
                "answer": "new",
                "sentence": "Ann heads it.",
                "date": "2021-02-03",
                "title": "Aland",
                "document": "d7",
                "sentences": 4,
            },
            {"probe": "new_lama", "id": "1", "side": "D0", "answer": "new", "sentence": HOSTILE},
            {
                "probe": "updated_lama",
                "id": "0",
                "side": "D0",
                "answer": "old",
                "sentence": "Old Man led Cland.",
                "date": "2019-01-01",
                "sentences": 1,
            },
        ],
    )
    return out


def test_the_file_needs_nothing_else_and_holds_no_html_of_items(folder):
    path = review_page.write_page(folder)
    page = path.read_text()
    assert path == folder / "review.html"
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<img" not in page and "HACKED'</" not in page
    assert not re.search(r"\b(?:src|href)=\"(?!#)", page) and "default-src 'none'" in page
    data = re.search(r'id="items-data">(.*?)</script>', page, re.DOTALL)[1]
    items = json.loads(data)["items"]
    reviewable = read_reviewable(folder)
    assert [i["key"] for i in items] == list(reviewable.items)
    assert items[2]["answers"] == [HOSTILE] and items[2]["evidence"][0]["sentence"] == HOSTILE


def test_the_page_may_lie_elsewhere(folder, tmp_path, capsys):
    assert ckl.main(["data", "review", str(folder), "--out", str(tmp_path / "p.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "p.html")
    assert not (folder / "review.html").exists()


# --- in a browser


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )


def decisions(browser):
    return json.loads(browser.run("review.exported()"))["decisions"]


@pytest.mark.slow
def test_keys_and_buttons_decide_and_the_export_applies(folder, browser, tmp_path):
    path = review_page.write_page(folder)
    browser.open(path)
    assert browser.run("document.title") == "Review of probes"  # and not HACKED
    rows = texts(browser, "#rows > tr")
    assert len(rows) == 4 and "Old Man led Cland." in rows[0] and "Ann heads it." in rows[1]
    assert browser.run("document.querySelectorAll('#rows img, #rows script').length") == 0
    assert HOSTILE in rows[2] and texts(browser, "#rows mark")[:2] == ["Old Man", "Ann"]
    assert texts(browser, "#progress") == ["0 of 4 decided: 0 kept, 0 dropped, 0 edited"]

    browser.key("1")  # keeps the first and goes to the next
    assert texts(browser, "tr.selected")[0].startswith("The head of Aland")
    browser.key("j")
    browser.key("2")  # drops the hostile one
    assert texts(browser, "#progress") == ["2 of 4 decided: 1 kept, 1 dropped, 0 edited"]
    browser.key("u")  # the last one is selected, and not decided: nothing happens
    browser.click("tr[data-key='new_lama/2'] button.edit")
    browser.run(
        "(() => { const f = document.querySelector('form').elements;"
        "f.statement.value = 'The mayor is Bob.'; f.answers.value = 'Bob\\n Bo ' })()"
    )
    browser.click("form button[type=submit]")
    assert texts(browser, "form .error") == ["The statement has 0 blanks; write one, as ____."]
    browser.key("1")  # is typed, and decides nothing
    assert "new_lama/2" not in decisions(browser)
    browser.run("document.querySelector('form').elements.statement.value = 'Its mayor is ____.'")
    browser.run("document.querySelector('form textarea').focus()")
    browser.key("Enter", modifiers=2)
    assert texts(browser, "tr.edit .statement")[0].startswith("Its mayor is ____.")
    found = decisions(browser)
    assert {key: d["action"] for key, d in found.items()} == {
        "updated_lama/0": "keep",
        "new_lama/1": "drop",
        "new_lama/2": "edit",
    }
    assert found["new_lama/2"]["answers"] == ["Bob", "Bo"]

    browser.click("#export")
    exported = browser.downloads / "decisions.json"
    for _ in range(100):
        if exported.exists():
            break
        time.sleep(0.1)
    out = tmp_path / "reviewed"
    argv = ["data", "review", str(folder), "--apply", str(exported), "--out", str(out)]
    assert ckl.main(argv) == 0
    assert [i.input for i in read_probe("new_lama", out)] == [
        f"The head of Aland is {BLANK}.",
        f"Its mayor is {BLANK}.",
    ]
    assert browser.errors() == [] and browser.requests() == []


@pytest.mark.slow
def test_decisions_outlive_the_page_and_are_imported(folder, browser, tmp_path):
    path = review_page.write_page(folder)
    browser.open(path)
    for key in ("1", "2", "1"):
        browser.key(key)
    browser.click("tr[data-key='updated_lama/0'] button.drop")  # changes the mind
    assert texts(browser, "tr.selected")[0].startswith("The head of Aland")  # the next one
    before = decisions(browser)
    browser.run("review.flush()")
    browser.open(path)
    assert decisions(browser) == before and len(before) == 3
    assert texts(browser, "#progress") == ["3 of 4 decided: 1 kept, 2 dropped, 0 edited"]
    browser.run(
        "document.querySelector('#state').value = 'undecided';"
        "document.querySelector('#state').dispatchEvent(new Event('change'))"
    )
    assert len(texts(browser, "#rows > tr")) == 1
    more = {
        "format": "ckl-review-1",
        "decisions": {
            "new_lama/2": {"action": "keep"},
            "new_lama/99": {"action": "keep"},
            "__proto__": {},
        },
    }
    (tmp_path / "more.json").write_text(json.dumps(more))
    browser.choose_file("#import", tmp_path / "more.json")
    browser.wait("document.querySelector('#message').textContent.includes('imported')")
    assert texts(browser, "#message") == ["Decisions imported: 1; on items that are not here: 2."]
    assert decisions(browser) == before | {"new_lama/2": {"action": "keep"}}
    (tmp_path / "bad.json").write_text("[1")
    browser.choose_file("#import", tmp_path / "bad.json")
    browser.wait(
        "document.querySelector('#message').textContent.includes('not a file of decisions')"
    )
    assert browser.errors() == []


@pytest.mark.slow
def test_twenty_thousand_items_stay_usable(browser, tmp_path):
    items = [
        new(i, f"The head of Town {i} is {BLANK}.", f"Person {i}", relation=f"P{i % 28}")
        for i in range(20_000)
    ]
    write_probe("new_lama", tmp_path / "many", items)
    write_jsonl(
        tmp_path / "many" / "evidence.jsonl",
        (
            {
                "probe": "new_lama",
                "id": str(i),
                "side": side,
                "answer": "new",
                "sentence": f"Person {i} heads Town {i}. " * 8,
                "sentences": 1,
            }
            for i in range(20_000)
            for side in ("D0", "D1")
        ),
    )
    begun = time.monotonic()
    browser.open(review_page.write_page(tmp_path / "many"))
    assert len(texts(browser, "#rows > tr")) == 50
    loaded = time.monotonic() - begun
    begun = time.monotonic()
    for _ in range(60):  # over the end of a page of rows
        browser.key("1")
    keyed = (time.monotonic() - begun) / 60
    assert texts(browser, "#place") == ["51 to 100 of 20,000"]
    browser.run("document.querySelector('#search').value = 'town 19999 '")
    begun = time.monotonic()
    browser.run("document.querySelector('#search').dispatchEvent(new Event('input'))")
    browser.wait("document.querySelectorAll('#rows > tr').length === 1")
    searched = time.monotonic() - begun
    print(f"\nloaded in {loaded:.2f} s, a key in {keyed:.3f} s, found in {searched:.2f} s")
    assert loaded < 20 and keyed < 0.5 and searched < 5
    assert len(decisions(browser)) == 60 and browser.errors() == []

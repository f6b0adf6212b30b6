"""Pages of a class: what an instructor and a student read on them, and that text of others stays text."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kit.classroom.marks import Class, Graded, Student, Trouble
from kit.classroom.pages import code, frame, write
from kit.classroom.pages.given import Given, given
from kit.classroom.pages.overview import Overview, without_numbers
from kit.classroom.pages.words import file_names
from kit.classroom.tables import SCHEMA, as_csv, as_json
from kit.grade import discovery
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.grade.words import on_one_line
from kit.plot.palette import contrast
from tests.classroom import seen_class

NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></tr></table></main><h1>all passed",
    "two\nlines\r\nand\x0bmore\u2028yet",
    "\x1b[2J\x1b]0;title\x07red",
    "\u202egnp.exe\u2066\u200f",
    "=HYPERLINK(1)",
    "\t=1+1",
    "</script><style>*{display:none}</style>",
    "&lt;b&gt;&#60;",
    "`</code>`<b>`",
    "half \ud800 of a letter",
    "e\u0301" * 400,
    "m" * 1_000_000,
    "../../etc/passwd",
    "",
)
VOID = {"meta", "input", "br", "img"}


class Seen(HTMLParser):
    """A page as a browser reads it: what stands in what, and its words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(path: Path) -> Seen:
    return Seen(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def class_() -> Class:
    return seen_class.seventy()


@pytest.fixture(scope="module")
def pages(class_: Class, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    assert write(class_, folder) == folder / "index.html"
    return folder


def some(outcome: str, sentence: str, student: str = "ada", source: str = "def f():\n    pass\n") -> Graded:
    exercise = discovery.find("who-am-i")
    return seen_class.mark(student, exercise, outcome, source, sentence, "values" if outcome == FAILED else "")


def class_of(*marks: Graded, **changed: object) -> Class:
    students = tuple(Student(mark.student.title(), mark.student) for mark in marks)
    made = Class(tuple(dict.fromkeys(students)), marks, (), ("00_ranks",), "bubblewrap", (), 1.0)
    return replace(made, **changed)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- the class page


def test_the_first_line_says_what_held_and_what_did_not() -> None:
    def begins(**changed: object) -> str:
        from kit.classroom.pages import class_page

        page = class_page.html(Overview(class_of(some(PASSED, ""), **changed)))
        return Seen(page).text.removeprefix("Marks of the class ")

    assert begins().startswith("Answers ran behind bubblewrap. Marks")
    told = begins(walls="plain processes", not_held=("answers can read your files",))
    assert told.startswith("Answers ran behind plain processes. Not held back by it:Answers can read your files.")
    assert "1 answer ran earlier, behind bubblewrap." in told


def test_the_matrix_has_a_row_for_each_student_and_a_word_for_each_mark(class_: Class, pages: Path) -> None:
    page, raw = read(pages / "index.html"), (pages / "index.html").read_text(encoding="utf-8")
    rows = [each for each in page.of("tr") if "data-has" in each]
    assert len(rows) == len(class_.roster) == 70
    assert sum(each["data-has"] == "missing" for each in rows) == 4  # two with files that cannot be read
    for outcome in (PASSED, FAILED, NOT_ATTEMPTED, UNCHECKED):
        marks = [mark for mark in class_.graded if mark.outcome == outcome]
        assert raw.count(f'class="unseen">{outcome}<') == len(marks) > 0
    assert "35 of 66 (53 %)" in page.text
    assert "Nothing from 2 students" in page.text and class_.roster[69].name in page.text
    assert "s066.ipynb" in page.text and "It is an empty file." in page.text


def test_links_lead_to_what_is_there(pages: Path) -> None:
    for path in pages.rglob("*.html"):
        for link in read(path).of("a"):
            target, _, part = str(link["href"]).partition("#")
            page = (path.parent / target) if target else path
            assert page.is_file(), (path, link)
            assert not part or part in {each.get("id") for _, each in read(page).tags}, (path, link)
    files = {path.name for path in (pages / "students").iterdir()}
    assert len(files) == 68 and "s000.html" in files


def test_equal_hand_ins_are_named_where_two_answers_are_equal() -> None:
    first, second, third = discovery.labs()["00_ranks"].exercises
    text = "def f():\n    return 1\n"
    marks = [seen_class.mark(who, each, PASSED, text) for who in ("ada", "bob") for each in (first, second)]
    marks += [seen_class.mark("eve", first, PASSED, text), seen_class.mark("ada", third, NOT_ATTEMPTED, "stub")]
    seen = Overview(class_of(*marks))
    ((rows, number),) = seen.alike("00_ranks")
    assert [row.student.key for row in rows] == ["ada", "bob"] and number == 2


# ------------------------------------------------------------------------------------------- one exercise, one student


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 2 has 4 times the right value", "rank 0 has 2 times the right value"),
        ("ranks 0, 2 and 3 received nothing", "rank 1 received nothing"),
        ("rank 1 sent 96 bytes where 64 bytes are enough", "rank 3 sent 1,200 bytes where 8 bytes are enough"),
        ("-1.5e-07 at [0, 3] where 2 is right", "3 at [11] where 0.25 is right"),
        ("rank 0 sent 2 messages where 1 is enough", "rank 0 sent 1 message where 4 are enough"),
        ("on 2 ranks, C = 10: rank 0 is wrong", "on 4 ranks, batch size = 1,024, C = 3: rank 3 is wrong"),
        ("too much was sent (3 ranks, C = 18)", "too much was sent (2 ranks)"),
        ("a tensor of shape (3,) at line 9", "a tensor of shape (12,) at line 10"),
    ],
)
def test_a_sentence_is_the_same_whatever_its_numbers_are(one: str, other: str) -> None:
    assert without_numbers(one) == without_numbers(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a float32 tensor where one int64 is right", "a int64 tensor where one float32 is right"),
        ("on 2 ranks, C = 10: rank 0 is wrong", "right on 2 ranks only; on 3 ranks, C = 10: rank 0 is wrong"),
        ("the sum was not divided by 4", "the sum was divided by 4 twice"),
        ("NameError: name 'x1' is not defined", "NameError: name 'x2' is not defined"),
    ],
)
def test_a_sentence_about_something_else_stays_another(one: str, other: str) -> None:
    assert without_numbers(one) != without_numbers(other)


def test_wrong_answers_stand_by_their_sentence_the_commonest_first(pages: Path) -> None:
    for exercise, number in seen_class.COMMONEST.items():
        page = read(pages / "exercises" / f"{exercise}.html")
        times = [int(each.split()[0]) for each in page.words if re.fullmatch(r"\d+ ×", each)]
        assert times == sorted(times, reverse=True) and times[0] == number and sum(times) == number + 6 + 1
        assert f"The exercise stands under {given(exercise).section}." in page.text


def test_what_leads_to_an_exercise_is_found_by_the_names_in_its_hints() -> None:
    found = given("rank-zero-speaks")
    assert found.section == "Write it: rank 0 speaks"
    assert found.before == "Step it live: they meet" and found.shows == ("dist.all_reduce",)
    assert given("no-such-exercise") == Given()


def test_what_the_lab_gave_is_folded_and_what_is_new_is_open() -> None:
    stub = 'import torch\n\n\ndef f(x):\n    """Words\n    and more."""\n    raise NotAttempted\n'
    own = stub.replace("raise NotAttempted", "return x + 1")
    page = Seen(code.html(own, Given(stub), "line 7 is wrong, line 3 of helpers too"))
    assert "lines 1 to 6, as given" in page.text and len(page.of("details")) == 1
    assert [each["class"] for each in page.of("div") if "line" in str(each["class"])].count("line named") == 1
    assert Seen(code.html(stub, Given(stub))).of("details") == []  # there is nothing new to show first


def test_a_line_that_a_sentence_names_is_never_folded() -> None:
    stub = "def f(x):\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n"
    page = Seen(code.html(f"{stub}    return a\n", Given(stub), "from line 3"))
    assert "lines 1 to 2, as given" in page.text and "lines 4 to 5, as given" in page.text


def test_a_students_page_has_hints_and_neither_the_solution_nor_anybody_else(class_: Class, pages: Path) -> None:
    by_student = {student.key: student.name for student in class_.roster}
    third = [exercise.hints[2] for exercise in discovery.labs()["00_ranks"].exercises]
    for key, own in by_student.items():
        path = pages / "students" / f"{key}.html"
        if not path.exists():
            continue
        page = read(path)
        assert own in page.text
        others = [one for who, one in by_student.items() if who != key and (one in page.text or who in page.text)]
        assert others == []
        assert not any(hint.replace("`", "") in page.text for hint in third)
        assert all(str(link["href"]).startswith("#") for link in page.of("a"))
    marks = [mark for mark in class_.graded if mark.student == "s003"]
    page = read(pages / "students" / "s003.html")
    for mark in marks:
        assert (given(mark.exercise).hints[0].replace("`", "") in page.text) == (mark.outcome != PASSED)


def test_whoever_handed_in_what_cannot_be_read_is_told(pages: Path) -> None:
    page = read(pages / "students" / "s066.html")
    assert "Nothing that was handed in could be judged." in page.text and "It is an empty file." in page.text


# ------------------------------------------------------------------------------------------------- text that is nasty


def nasty_class(text: str) -> Class:
    """A class in which every field that somebody else writes says this, with a well-behaved student beside."""
    calm = some(FAILED, "rank 0 is wrong", "calm")
    rude = replace(
        calm, student=text, file=text, sentence=text, source=text, stage=text, walls=text, digest=text,
        exercise=calm.exercise, outcome=FAILED,
    )  # fmt: skip
    roster = (Student("Calm", "calm"), Student(text, text))
    trouble = Trouble(text, text, text)
    ours = on_one_line(text)
    return Class(roster, (calm, rude), (trouble,), ("00_ranks",), ours, (ours,), 1.0)


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_text_of_others_changes_no_row_and_runs_nothing(text: str, tmp_path: Path) -> None:
    write(nasty_class("calm words"), tmp_path / "calm")
    write(nasty_class(text), tmp_path / "nasty")
    calm = [read(path) for path in _in_order(tmp_path / "calm")]
    paths = _in_order(tmp_path / "nasty")
    assert len(paths) == len(calm) == 4
    for path, like in zip(paths, calm, strict=True):
        page, raw = read(path), path.read_text(encoding="utf-8")
        assert len(raw) < 400_000
        assert len(page.of("tr")) == len(like.of("tr"))
        assert {tag for tag, _ in page.tags} - {"code", "details", "summary"} <= {tag for tag, _ in like.tags}
        assert len(page.of("script")) == len(like.of("script")) and len(page.of("style")) == 1
        assert not [name for _, each in page.tags for name in each if name.startswith("on")]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", raw)
        assert path.resolve().is_relative_to(tmp_path / "nasty")


def _in_order(folder: Path) -> list[Path]:
    """The class page, the exercise's, the calm student's, the other's."""
    return [
        folder / "index.html",
        *sorted(folder.glob("exercises/*")),
        *sorted(folder.glob("students/*"), key=lambda path: path.name != "calm.html"),
    ]


def test_escaped_text_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(nasty_class(NASTY[0]), tmp_path)
    for path in _in_order(tmp_path)[:2]:
        assert NASTY[0] in read(path).text


def test_no_script_but_ours_may_run(pages: Path) -> None:
    for path in pages.rglob("*.html"):
        page = read(path)
        (policy,) = (str(each["content"]) for each in page.of("meta") if each.get("http-equiv"))
        assert "default-src 'none'" in policy
        assert ("sha256-" in policy) == (path.name == "index.html") == bool(page.of("script"))
        assert not re.search(r"https?:|url\(|@import|src=", path.read_text(encoding="utf-8"))


def test_pages_have_names_that_every_system_takes_and_no_two_the_same() -> None:
    names = file_names(["ada", "Ada", "eve/x", "eve x", "../..", "", ".hidden", "m" * 5000, "山田"])
    assert len({name.casefold() for name in names.values()}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name) for name in names.values())
    assert file_names(["ada"]) == {"ada": "ada"}


# ------------------------------------------------------------------------------------------------------- tables, look


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_table_keeps_its_rows_and_computes_nothing(text: str) -> None:
    rows = list(csv.reader(io.StringIO(as_csv(nasty_class(text)), newline="")))
    assert [len(row) for row in rows] == [4, 4, 4] and rows[0] == ["name", "key", "who-am-i", "remarks"]
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@")) or "\n" in cell]
    assert all(len(cell) < 32_768 for cell in cells)  # what a cell of a spreadsheet holds


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_json_gives_the_class_back(text: str) -> None:
    class_ = nasty_class(text)
    kept = json.loads(as_json(class_).encode("utf-8"))
    assert kept.pop("schema") == SCHEMA
    graded = tuple(Graded(**{**each, "worlds": tuple(each["worlds"])}) for each in kept.pop("graded"))
    roster = tuple(Student(**each) for each in kept.pop("roster"))
    troubles = tuple(Trouble(**each) for each in kept.pop("troubles"))
    labs, not_held = tuple(kept.pop("labs")), tuple(kept.pop("not_held"))
    assert Class(roster, graded, troubles, labs, not_held=not_held, **kept) == class_


@pytest.mark.parametrize("theme", [0, 2])
def test_text_reads_on_every_ground_of_both_themes(theme: int) -> None:
    """4.5 : 1 for text, as WCAG 2.2 asks (1.4.3)."""
    page = frame.page("", "")
    block = re.findall(r"\{([^{}]*--ls-bg:[^{}]*)\}", page)[theme]
    colors = dict(re.findall(r"--ls-([a-z-]+):(?:var\([^,]*, )?(#[0-9a-f]{6})", block))
    for ink in ("fg", "mut", "accent", "keyword", "string", "good", "bad"):
        code = ("hi",) if ink in ("fg", "mut", "keyword", "string") else ()
        for ground in ("bg", "soft", *code):
            assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)

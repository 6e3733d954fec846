"""What the docs point at is there, and they call things by one name."""

import json
import pathlib
import re

import pytest

from rosmo.report.write import markdown

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REPORTS = sorted((ROOT / "docs" / "results").glob("*/report.md"))
SPEAKING = [*PAGES, *sorted((ROOT / "rosmo").rglob("*.py"))]
ROOMS = "rosmo|tests|benchmarks|examples"


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```|^ {4}.*?$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets of links and images that lead to files, and not into the web."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: pathlib.Path) -> set[str]:
    """The names that headings are linked by."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing(text: str, page: pathlib.Path) -> list[str]:
    """The links of a page whose file is not there, or has no such heading."""
    absent = []
    for target in links(text):
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            absent.append(target)
    return absent


def files_named(text: str) -> set[str]:
    """Files of this repository that a page names; benchmarks also as modules."""
    paths = set(re.findall(rf"(?<![\w/.])(?:{ROOMS})/[\w/.\-]+\.(?:py|gin|json|toml)\b", text))
    modules = re.findall(r"(?<=python -m )benchmarks\.\w+", text)
    return paths | {module.replace(".", "/") + ".py" for module in modules}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    assert missing(page.read_text(), page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_is_named_exists(page):
    assert [name for name in sorted(files_named(page.read_text())) if not (ROOT / name).exists()] == []


def test_a_link_that_leads_nowhere_is_found():
    page = ROOT / "README.md"
    text = (
        "[a](README.md) [b](no.md) ![c](#two-commands) [d](#three) [e](https://no.where) [f](docs/data.md#no)"
    )
    assert missing(text, page) == ["no.md", "#three", "docs/data.md#no"]
    assert files_named("`rosmo/gone.py`, ../rosmo/gone.py, python -m benchmarks.gone") == {
        "rosmo/gone.py",
        "benchmarks/gone.py",
    }


def test_every_page_is_linked_from_the_readme_or_a_page_that_is():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        found = {(page.parent / target.partition("#")[0]).resolve() for target in links(page.read_text())}
        todo += [path for path in found - reached if path.suffix == ".md"]
    assert [name_of(page) for page in PAGES if page not in reached] == []


def rooms_of(text: str) -> list[str]:
    """The rows of the table of files, each path below `rosmo/`."""
    table = text.partition("## What the files do")[2].partition("## Who imports whom")[0]
    return re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", table)


def test_the_architecture_names_what_is_there_and_leaves_no_room_out():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"(?<![\w/])((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|gin|toml))\b", text))
    assert len(named) > 40
    absent = [n for n in named if not (ROOT / "rosmo" / n).exists() and not (ROOT / n).exists()]
    assert absent == []
    rooms = {path.parent.name for path in (ROOT / "rosmo").glob("*/__init__.py")}
    assert {room for room in rooms if f"{room}/" not in text} == set()
    listed = set(rooms_of(text))
    for room in ("learner", "data", "runs"):
        files = {f"{room}/{path.name}" for path in (ROOT / "rosmo" / room).glob("[!_]*.py")}
        assert files - listed <= {"data/tfds_load.py"}


def other_words(text: str) -> list[str]:
    """What actions are called that are sampled or greedy."""
    words = r"likeliest|drawn\s+actions|actions?\s+drawn|, drawn \||\| drawn \|"
    words += r"|drawn\s+(?:by|from)\s+the\s+(?:improved\s+)?(?:policy|weights)"
    return re.findall(words + r"|draws\s+(?:\w+\s+){0,4}actions?\b", text)


def test_actions_are_sampled_or_greedy_and_nothing_else():
    assert {name_of(path): found for path in SPEAKING if (found := other_words(path.read_text()))} == {}
    others = "by drawn\nactions, the likeliest | drawn | draws the action drawn by the weights."
    assert other_words(others) == [
        "drawn\nactions",
        "likeliest",
        "| drawn |",
        "draws the action",
        "drawn by the weights",
    ]


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.parent.name)
def test_a_report_that_is_kept_is_what_its_results_are_written_as(report):
    summary = json.loads(report.with_name("results.json").read_text())
    pictures = {path.stem: path.name for path in report.parent.glob("*.png")}
    assert markdown(summary, pictures) == report.read_text()

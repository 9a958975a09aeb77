"""Links, modules and commands in the texts for readers are there."""

import re
import shlex
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

from chainer_profile.cli.parsers import parser_of
from chainer_profile.cli.sweep import cases_of, read_toml
from models.registry import REGISTRY
from tests import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
for folder in ("docs", "reports/samples", "reports/references"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))


def links(text):
    """The addresses of a text's links and pictures."""
    for block in MarkdownIt().enable("table").parse(text):
        for token in block.children or []:
            address = token.attrs.get("href") or token.attrs.get("src")
            if address:
                yield unquote(str(address))


def anchors(text):
    """GitHub's names of the headings."""
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page):
    """The relative links that lead nowhere."""
    addresses = []
    for address in links(page.read_text()):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = page.parent / parts.path if parts.path else page
        named = parts.fragment if target.suffix == ".md" else ""
        if not target.exists() or (named and named not in anchors(target.read_text())):
            addresses.append(address)
    return addresses


def test_links_lead_to_files_and_headings(tmp_path):
    assert {str(page): addresses for page in PAGES if (addresses := broken(page))} == {}
    # A broken one is seen.
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b-c`, d\n\n[x](#a-b-c-d) [x](#e) ![y](y.png) [z](<no z.md>) [w](https://example.org)\n\n"
        "| a |\n| - |\n| [p](page.md) [n](none.md) |\n\n`[code](none)`\n"
    )
    assert broken(page) == ["#e", "y.png", "no z.md", "none.md"]
    assert len(PAGES) > 40


def test_the_index_has_every_page_once():
    listed = re.findall(r"^- \[(.+)\]\(\1\): ", (DOCS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page.name for page in DOCS.glob("*.md")} - {"README.md"})


def test_modules_that_a_page_names_are_there():
    rooms = [ROOT / room for room in ("chainer_profile", "models", "tests", "benchmarks")]
    there = {path.as_posix() for room in rooms for path in room.rglob("*.py")}
    examples = re.compile(r"(my_\w+|tiny|tsv)\.py$")
    for page in ("architecture.md", "recipes.md"):
        named = set(re.findall(r"`([\w/]+\.py)`", (DOCS / page).read_text()))
        assert len(named) > 8
        gone = {name for name in named if not any(path.endswith(f"/{name}") for path in there)}
        assert {name for name in gone if not examples.search(name)} == set(), page


def commands(word):
    """The arguments of every such command that the command's page shows."""
    text = (DOCS / f"{word}.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^    .*?python .*?profile\.py (.*)$", text, re.MULTILINE)
    command_words = [shlex.split(line.replace(">", "#"), comments=True) for line in lines]
    return [parser_of(word).parse_args(words[1:]) for words in command_words if words[0] == word]


def test_sweeps_that_the_documentation_shows(tmp_path):
    def find(model):
        return model, REGISTRY[model].input_shape

    sweeps = commands("sweep")
    assert len(sweeps) == 2
    first = sweeps[0]
    options = {"model": first.model, "input-shape": first.input_shape, "device": first.device}
    assert len(cases_of(options, find)) == 12
    toml = re.search(r"```toml\n(.*?)```", (DOCS / "sweep.md").read_text(), re.DOTALL)
    (tmp_path / "r3.toml").write_text(toml[1])
    name, groups = read_toml(tmp_path / "r3.toml")
    assert name == "r3"
    cases = [case for where, group in groups for case in cases_of(group, find, where)]
    assert sorted(case.settings.trials for case in cases) == [300] * 6 + [1000] * 6

"""Links, modules and commands in the documentation exist."""

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
    """Return the addresses of links and pictures in a text."""
    for block in MarkdownIt().enable("table").parse(text):
        for token in block.children or []:
            address = token.attrs.get("href") or token.attrs.get("src")
            if address:
                yield unquote(str(address))


def anchors(text):
    """Return GitHub's anchors of the headings."""
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page):
    """Yield the relative links without a target."""
    for address in links(page.read_text()):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = page.parent / parts.path if parts.path else page
        named = parts.fragment if target.suffix == ".md" else ""
        if not target.exists() or (named and named not in anchors(target.read_text())):
            yield address


def test_links_have_targets(tmp_path):
    assert len(PAGES) > 40
    assert {page.name: addresses for page in PAGES if (addresses := list(broken(page)))} == {}
    # Broken links are found.
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b-c`, d\n\n[x](#a-b-c-d) [x](#e) ![y](y.png) [z](<no z.md>) [w](https://example.org)\n\n"
        "| a |\n| - |\n| [p](page.md) [n](none.md) |\n\n`[code](none)`\n"
    )
    assert list(broken(page)) == ["#e", "y.png", "no z.md", "none.md"]


def test_index_lists_every_page_once():
    listed = re.findall(r"^- \[(.+)\]\(\1\): ", (DOCS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page.name for page in DOCS.glob("*.md")} - {"README.md"})


def test_modules_on_a_page_exist():
    folders = [ROOT / folder for folder in ("chainer_profile", "models", "tests", "benchmarks")]
    there = "\n".join(f"{path.as_posix()}\n" for folder in folders for path in folder.rglob("*.py"))
    for page in ("architecture.md", "recipes.md"):
        named = re.findall(r"`([\w/]+\.py)`", (DOCS / page).read_text())
        # Modules in examples do not exist.
        named = {name for name in named if not re.search(r"(my_\w+|tiny|tsv)\.py$", name)}
        assert len(named) > 8
        assert {name for name in named if f"/{name}\n" not in there} == set(), page


def test_stack_in_the_documentation_is_in_the_sample():
    (line,) = re.findall(r"^    (resnet20;.*) \d+$", (DOCS / "files.md").read_text(), re.MULTILINE)
    sample = (ROOT / "reports/samples/resnet20-cpu-b1/stacks.folded").read_text()
    assert f"\n{line} " in sample


def test_sweeps_in_the_documentation_have_the_stated_cases(tmp_path):
    def find(model, classes, arguments):
        return model, REGISTRY[model].input_shape

    text = (DOCS / "sweep.md").read_text()
    lines = re.findall(
        r"^    .*?python .*?profile\.py sweep (.*)$", text.replace("\\\n", " "), re.M
    )
    words = [shlex.split(line.replace(">", "#"), comments=True) for line in lines]
    first = parser_of("sweep").parse_args(words[0])
    shapes = tuple(first.input_shape)
    options = {"model": first.model, "input-shape": shapes, "device": first.device}
    assert len(cases_of(options, find)) == 12
    toml = tmp_path / "r3.toml"
    toml.write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    _, groups = read_toml(toml)
    cases = [case for where, group in groups for case in cases_of(group, find, where)]
    assert sorted(case.settings.trials for case in cases) == [300] * 6 + [1000] * 6

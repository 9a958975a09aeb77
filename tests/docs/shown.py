"""Commands in the documentation, in blocks of code and in sentences."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

from tests import ROOT

PAGES = [ROOT / "README.md", ROOT / "examples/speed.yml"]
for folder in ("docs", "reports/samples", "reports/references"):
    PAGES += sorted((ROOT / folder).glob("*.md"))
#: Tokens after which a shell command ends.
_ENDS = frozenset(("&&", "||", "|", ";", "(", ")", ">", "<", "do", "done"))
_PROGRAMS = re.compile(r"(?:\S*/)?(profile\.py|train\.py|chainer-profile)")


@dataclass(frozen=True)
class Shown:
    """A command of this project on a page."""

    page: str
    #: ``profile.py``, ``train.py``, or ``python -m`` with the module of another program.
    program: str
    words: tuple[str, ...]
    #: Whether the command is in a code block, as a line to type.
    in_block: bool = True

    @property
    def argv(self) -> list[str]:
        """Return the arguments of ``profile.py``."""
        return [*(["train"] if self.program == "train.py" else []), *self.words]

    def __str__(self) -> str:
        return f"{self.page}: {self.program} {shlex.join(self.words)}"


def commands() -> list[Shown]:
    """Return every command of this project on the pages, in order."""
    found = []
    for page in PAGES:
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        if page.suffix == ".yml":
            found += [x for line in _lines(text) for x in _commands_in_line(name, line, True)]
            continue
        for block in MarkdownIt().enable("table").parse(text):
            if block.type in ("code_block", "fence"):
                found += [
                    x for line in _lines(block.content) for x in _commands_in_line(name, line, True)
                ]
            for token in block.children or ():
                if token.type == "code_inline":
                    found += _commands_in_line(name, token.content, False)
    return found


def magics() -> list[tuple[str, str]]:
    """Return the page and text of every line of a notebook that uses our magics."""
    a_line = re.compile(r"^%{1,2}layerprofile.*$|(?<=`)%{1,2}layerprofile [^`]+", re.MULTILINE)
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    texts["examples/notebook.ipynb"] = "\n".join(code)
    return [(page, line) for page, text in texts.items() for line in a_line.findall(text)]


def options() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and words of options that sentences mention, such as ``--skip memory``."""
    for page in PAGES:
        if page.suffix != ".md":
            continue
        for block in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
            for token in block.children or ():
                if token.type == "code_inline" and re.match(r"--?[a-z]", token.content):
                    yield str(page.relative_to(ROOT)), token.content.split()


def _lines(text: str) -> Iterator[str]:
    """Yield logical lines; a line of a loop over ``i`` comes once for each of its three values."""
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        for value in ("1", "2", "3") if "$i" in line else ("",):
            yield line.strip().replace("$i", value)


def _commands_in_line(page: str, line: str, in_block: bool) -> Iterator[Shown]:
    """Yield the commands in a shell line."""
    if line.startswith(("%", "#")) or not re.search(r"\.py|chainer[-_]profile|python", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = "#" if in_block else ""
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # not a shell line
        return
    command: list[str] = []
    for token in [*tokens, ";"]:
        if token not in _ENDS and not set(token) <= set("();<>|&"):
            command.append(token)
            continue
        yield from _own_commands(page, command, in_block)
        command = []


def _own_commands(page: str, tokens: list[str], in_block: bool) -> Iterator[Shown]:
    """Yield the command if it belongs to this project."""
    for index, token in enumerate(tokens):
        after = tokens[index + 1 :]
        if token == "-m" and after and tokens[index - 1].startswith("python"):
            if after[0] == "chainer_profile":
                yield Shown(page, "profile.py", tuple(after[1:]), in_block)
                return
            if after[0].split(".")[0] in ("benchmarks", "tests"):
                yield Shown(page, f"python -m {after[0]}", tuple(after[1:]), in_block)
                return
        if match := _PROGRAMS.fullmatch(token):
            is_typed = index == 0 or tokens[index - 1].startswith("python") or "=" in tokens[0]
            if is_typed and (in_block or after):
                program = match[1].replace("chainer-profile", "profile.py")
                yield Shown(page, program, tuple(after), in_block)
            return

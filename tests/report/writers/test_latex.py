import re
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.writers.latex import label, text
from chainer_profile.runs.wanted import Wanted
from chainer_profile.runs.write import asked_for
from tests import needs
from tests.conftest import make_recording
from tests.report.documents import NAMES, named, summaries


def render(summary: Summary, title: ReportTitle | None = None) -> str:
    ((_, content),) = asked_for(summary, Wanted(("latex",), title))
    return content.decode()


def sources() -> list[str]:
    """Tables of runs, and last of one in which all that has a name has a hostile one."""
    named_so = summarise(named(make_recording(len(NAMES), n_trials=6), NAMES))
    title = ReportTitle(*["".join(NAMES)] * 4)
    return [*(render(make()) for make in summaries().values()), render(named_so, title)]


def without_signs(source: str) -> str:
    """The source without its escaped signs."""
    return re.sub(r"\\[\\{}$&#%_]", "", source)


def tables(source: str) -> list[tuple[str, str]]:
    """The kinds of columns of every table, and what is between its begin and end."""
    pattern = r"\\begin\{(tabular|longtable)\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{\1\}"
    return [(found[2], found[3]) for found in re.finditer(pattern, source, re.DOTALL)]


def test_any_run_with_any_name_is_ascii_in_rows_of_their_columns() -> None:
    """What LaTeX itself does not see, which compiles them all below."""
    for source in sources():
        assert source.isascii()
        assert all(c.isprintable() or c == "\n" for c in source)
        assert not re.search(r"\bnan\b|\binf\b|\bNone\b|<NA>", source)
        for kinds, content in tables(source):
            columns = len(re.sub(r"\{[^{}]*\}", "", kinds))
            for line in content.splitlines():
                if line.endswith(r"\tabularnewline") and r"\caption" not in line:
                    assert "multicol" in line or without_signs(line).count("&") == columns - 1
        labels = re.findall(r"\\label\{([^}]*)\}", source)
        assert len(labels) == len(set(labels)) == source.count(r"\caption")
        assert all(re.fullmatch(r"tab:[a-z0-9-]+", name) for name in labels)


@given(st.text(max_size=30))
def test_names_are_data(name: str) -> None:
    shown = text(name)
    assert shown.isascii()
    bare = without_signs(shown)
    # What is left are commands that are closed by braces, and mathematics in pairs.
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    plain = re.sub(r"\$[^$]*\$|\\[\"^~=.`']\{|~|---?|``|''", "", bare)
    assert not re.search(r"[%#_&~^<>\"|]", plain)
    assert "\n" not in shown
    assert not shown.startswith(("[", "*"))
    assert re.fullmatch(r"[a-z0-9-]*", label(name))
    commands = re.findall(r"\\([A-Za-z]+)", bare)
    assert not {"input", "end", "begin", "write", "catcode", "def"} & set(commands)


def test_text() -> None:
    for name, shown in (
        ("conv1", "conv1"),
        ("res_2/a b", r"res\_\allowbreak{}2/\allowbreak{}a b"),
        ("50 %", r"50 \%"),
        ("--out x", "-{}-out x"),
        ("a\\b", r"a\textbackslash{}b"),
        ("\u00e9\u00ef", r"\'{e}\"{\i}"),
        ("\u00b5s \u00d7 \u03b2", r"$\mu$s $\times$ $\beta$"),
        ("\u5c42", r"\textbackslash{}u5c42"),
        ("\n", r"\textbackslash{}n"),
        ("[0]", "{[}0{]}"),
    ):
        assert text(name) == shown


def test_the_long_table_has_the_layers_and_hot_ones_are_bold() -> None:
    for n_layers, shown in ((1, 1), (66, 66), (MAX_ROWS + 1, SLOWEST)):
        summary = summarise(make_recording(n_layers, n_trials=5), "top:3")
        content = tables(render(summary))[-1][1]
        rows = [line for line in content.partition(r"\endfoot")[2].splitlines() if "&" in line]
        assert len(rows) == shown
        assert sum(row.startswith(r"\textbf{") for row in rows) == min(3, n_layers)


def run_latex(folder: Path, name: str) -> str:
    pdflatex = needs.program("pdflatex", package="texlive-latex-base")
    words = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", name]
    done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2000:]
    return said


def test_it_compiles_alone_and_within_a_document(tmp_path: Path) -> None:
    names = []
    for at, source in enumerate(sources()):
        names.append(f"tables{at}.tex")
        (tmp_path / names[-1]).write_text(source)
    # The first one and the last are documents of their own, all of them are parts of another one.
    assert "Overfull" not in run_latex(tmp_path, names[0])
    run_latex(tmp_path, names[-1])
    inputs = "\n".join(rf"\input{{{name}}}\clearpage" for name in names)
    (tmp_path / "whole.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs,longtable}\n\\begin{document}\n"
        f"before\n{inputs}\nthe last words\n\\end{{document}}\n"
    )
    assert "Output written" in run_latex(tmp_path, "whole.tex")

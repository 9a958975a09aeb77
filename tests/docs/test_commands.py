"""Every command in the documentation works.

Each command is parsed by its own parser. Commands in code blocks also run, page by page and in
order, on small networks and with few trials.
"""

import importlib.util
import re
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from PIL import Image

from chainer_profile.basics import parsing
from chainer_profile.basics.errors import UsageError
from chainer_profile.cli import COMMANDS, PROFILE, advise
from chainer_profile.cli import main as cli
from chainer_profile.cli.main import _split
from chainer_profile.cli.notebook import _parse_line, _parser
from chainer_profile.cli.parsers import parser_of, parsers
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests import ROOT
from tests.cli.test_advise_command import Played
from tests.cli.test_messages import every_text
from tests.command import Entry
from tests.command import folder as folder
from tests.docs.shown import PAGES, commands, magics, options

SHOWN = commands()
#: Placeholders that a reader replaces.
PLACEHOLDERS = {"SCRIPT", "PROGRAM"}
#: Options of mpiexec, Dask, Docker and our benchmarks in sentences.
FOREIGN = {
    *("--oversubscribe", "--allow-run-as-root", "--mca", "--bind-to", "--host", "--cap-add"),
    *(
        "--grid",
        "--pytorch",
        "--cases",
        "--seed",
        "--registry",
        "--kernels",
        "--trainings",
        "--seconds",
        "--cpu",
        "--remake",
        "--user",
    ),
}


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    """A reader's machine may have more cores than the test machine."""
    monkeypatch.setattr(parsing, "usable_cores", lambda: 8)


def parsed(argv):
    """Parse a command; return its name and its values."""
    word, words = _split(list(argv))
    return word, parser_of(word).parse_args(words)


# -- parsed


def test_every_command_is_accepted_by_its_own_parser(tmp_path, monkeypatch, subtests):
    monkeypatch.chdir(tmp_path)
    ours = [shown for shown in SHOWN if not shown.program.startswith("python -m")]
    # The name of a command, and an option with its values in a list.
    names = [shown for shown in ours if shown.argv in [["report"], ["--model"]]]
    assert len(names) < 6
    ours = [shown for shown in ours if shown not in names and "--help" not in shown.words]
    assert len(ours) > 100
    for shown in ours:
        with subtests.test(str(shown)):
            if "--load-engine" in shown.words:
                Path("model.onnx").touch()
            word, args = parsed(shown.argv)
            if word == "run":  # options of ``run`` come before the program and its arguments
                program = args.program[0]
                assert program.endswith(".py") or args.module or program in PLACEHOLDERS


def test_our_other_programs_exist_and_have_the_options(subtests):
    others = [shown for shown in SHOWN if shown.program.startswith("python -m")]
    assert len(others) > 10
    for shown in others:
        with subtests.test(str(shown)):
            spec = importlib.util.find_spec(shown.program.split()[-1])
            assert spec is not None
            source = Path(str(spec.origin)).read_text()
            for word in shown.words:
                if word.startswith("--"):
                    assert f'"{word}"' in source, word


def takes(word, words):
    """Return whether a command accepts these words in addition to its usual arguments."""
    usual = {"report": ["DIR"], "export": ["net.onnx"], "run": ["a.py"], "compare": ["A", "B"]}
    try:
        parser_of(word).parse_known_args([*words, *usual.get(word, [])])
        names = {option for action in parser_of(word)._actions for option in action.option_strings}
    except UsageError:
        return False
    return words[0].partition("=")[0] in names


def test_options_in_sentences_belong_to_a_command(subtests):
    magics = {option for action in _parser()._actions for option in action.option_strings}
    several = [
        (page, [part.strip(",") for part in words])
        for page, words in options()
        if words[0].partition("=")[0] not in FOREIGN
        and page != "docs/cli.md"  # generated from the parsers
    ]
    assert len(several) > 90
    for page, words in several:
        with subtests.test(f"{page}: {' '.join(words)}"):
            first = words[0].partition("=")[0]
            placeholder = len(words) == 2 and re.search(r"\b[A-Z]+\b", words[1])
            shown = [first] if placeholder or words[1:2] == ["..."] else words
            names = {
                option
                for parser in parsers().values()
                for action in parser._actions
                for option in action.option_strings
            }
            assert first in names | magics | {"-m", "-c"}
            if len(shown) > 1 and first not in ("-m", "-c"):
                assert any(takes(word, shown) for word in COMMANDS) or first in magics


def test_magics_accept_the_options_on_the_pages():
    shown = magics()
    assert len(shown) > 3
    for page, line in shown:
        rest = line.partition("layerprofile")[2].replace("[options]", "-n 5")
        args, code = _parse_line(rest.replace("\n", " "))
        is_line = not line.startswith("%%")
        assert code.startswith("model(") == is_line, (page, line)
        assert args.trials


# -- run, page by page


class Small(chainer.Chain):
    """A network that accepts any input."""

    def __init__(self, classes=10):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(None, classes)

    def forward(self, x):
        return F.relu(self.fc(x[:, :1, :4, :4] if x.ndim == 4 else x))


#: The reader's own files.
NETS = (
    (ROOT / "tests/networks/old_networks.py").read_text()
    + """

class Net(chainer.Chain):
    def forward(self, x):
        return F.relu(x)

MyNet = Net
"""
)
#: Folders and files that a page expects the reader to have.
HAS = {
    "README.md": ("reports/A", "reports/B"),
    "docs/advise.md": ("reports/resnet20-cpu-b1",),
}
#: Words of commands that are only parsed, and why.
PARSED = {
    "run": "programs of a reader's own; tests/integrations runs programs",
    "--gpu": "needs a GPU",
    "-g": "needs a GPU",
    "@cupy:0": "needs a GPU",
    "--why": "samples for seconds; tests/measure/test_inside.py",
    "dask://HOST:8786": "needs a scheduler",
    "onnxruntime,onnxruntime:OpenVINOExecutionProvider": "needs another ONNX Runtime",
    "--help": "prints",
    "--help-all": "prints",
    "--version": "prints",
    "reports/train": "ranks of a program; tests/cli/test_ranks_command.py",
    "cifar100": "an archive of 160 MB",
    "resnet20-he": "162 epochs of CIFAR-10",
    "--machine": "measures the machine; tests/cli/test_cli_machine.py",
    "reports/train_ptb_custom_loop/test": "a line of what a program's run prints",
    "DIR": "a placeholder",
}
#: Pages with commands that are only parsed: measurements for others to repeat, and CI.
PARSED_PAGES = ("reports/references/README.md", "examples/speed.yml", "docs/ranks.md")


def registry():
    def entry(name, of):
        classes = None if of.classes is None else 10
        return Entry(Small, name, input_shape=of.input_shape, classes=classes)

    return {name: entry(name, of) for name, of in REGISTRY.items()}


def with_few_trials(argv):
    """Return a command's words with few trials and without the calibration."""
    word, _ = _split(argv)
    words = [each.removeprefix("../") for each in argv]  # the page has a folder with two clones
    few = {"--trials": "4", "-n": "4", "--warmups": "1", "-w": "1"}
    for index, option in enumerate(words[:-1]):
        words[index + 1] = few.get(option, words[index + 1])
    if word in (PROFILE, "engines"):
        words += [] if {"--trials", "-n"} & {*words} else ["--trials", "4"]
        words += [] if {"--warmups", "-w"} & {*words} else ["--warmups", "1"]
    if word == "sweep":
        words += [] if "--dry-run" in words else ["--dry-run"]
    if word == "train":
        words = ["synthetic:40" if each == "synthetic" else each for each in words]
        words += [] if {"-e", "--epoch"} & {*words} else ["--epoch", "1"]
        words += ["-b", "20"]
    return words


def is_run(shown):
    return (
        shown.in_block
        and shown.page not in PARSED_PAGES
        and not shown.program.startswith("python -m")
        and not any(word in PARSED for word in shown.words)
    )


def check(word, args):
    """Check the files that a command should leave."""
    if word == PROFILE and not (args.list_models or args.json):
        place = args.out or max(Path("reports").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        settings = load_run(place).settings
        assert settings.phase == args.phase
        assert settings.batchsize == (args.batchsize or settings.batchsize)
        assert settings.threads == args.threads
        assert (settings.fast or None) == args.fast
        assert place.joinpath("report.md").is_file()
    elif word == "report":
        assert (args.run / "report.md").is_file() or (args.run / "engines.md").is_file()
    elif word == "compare" and args.out is not None:
        assert (args.out / "comparison.html").is_file()
    elif word == "export":
        assert args.file.is_file()
    elif word == "engines" and not args.list_engines:
        assert list(Path("reports").glob("engines-*/engines.json"))
    elif word == "train":
        assert list(Path("results").glob("*/model.npz"))


@pytest.fixture
def reader(folder, monkeypatch, capsys):
    """Run the commands of a page like its reader."""
    monkeypatch.setattr(advise, "_start", lambda words, threads, stop, to: Played(to))
    for name in ("nets.py", "path/to/nets.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(NETS)

    def run(argv):
        code = cli.main(argv, registry())
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("page", dict.fromkeys(shown.page for shown in filter(is_run, SHOWN)))
def test_commands_of_a_page_run_in_order(page, reader, subtests):
    prepare(page, reader)
    for shown in filter(is_run, SHOWN):
        if shown.page != page:
            continue
        with subtests.test(str(shown)):
            argv = with_few_trials(shown.argv)
            word, words = _split(argv)
            args = parser_of(word).parse_args(words)
            code, message = reader(argv)
            assert code == 0, message
            check(word, args)


def prepare(page, reader):
    """Make the files that a page expects."""
    small = Small()
    small(np.zeros((1, 3, 32, 32), np.float32))
    for name in ("trained.npz", "model.npz"):
        chainer.serializers.save_npz(name, small)
    Image.new("RGB", (40, 30)).save("picture.jpg")
    Path("mine").mkdir()
    images, labels = np.zeros((40, 3072), np.uint8), np.arange(40) % 10
    np.savez("mine/cifar-10.npz", train_x=images, train_y=labels, test_x=images, test_y=labels)
    for run in HAS.get(page, ()):
        assert reader(["--trials", "4", "--warmups", "1", "-q", "--out", run])[0] == 0
    if page == "docs/sweep.md":
        toml = re.search(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        Path("r3.toml").write_text(toml[1])


def test_files_for_pip_exist():
    texts = [page.read_text() for page in PAGES] + [text for *_, text in every_text()]
    files = {name for text in texts for name in re.findall(r"-r (requirements[\w.-]*)", text)}
    assert len(files) > 3
    assert {name for name in files if not (ROOT / name).is_file()} == set()

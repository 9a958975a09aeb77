"""profile.py summary."""

import csv
import io
import re

import chainer.links as L
import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from models.registry import REGISTRY
from tests.command import OWN, Entry, Net, command


def run(*argv, build=Net, **entry):
    """Run the command on a tiny network."""
    args = list(argv)
    if "--model" not in args:
        args += ["--model", "tiny"]
    return command("summary", args, {"tiny": Entry(build, **entry), **REGISTRY})


def rows(capsys, *argv, **more):
    assert run("--format", "csv", *argv, **more) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_the_table(capsys):
    assert run("-b", "4") == 0
    out, err = capsys.readouterr()
    assert err == ""
    about = "input 4x3 float32; one forward pass in test mode"
    assert out.splitlines()[:2] == ["tiny", about]
    assert re.search(r"0 +/fc +LinearFunction +4x2 +8 +0 +24 ", out)
    assert re.search(r"1 +/ +ReLU +4x2 +0 +0 +0 ", out)
    assert re.search(r"^multiply-accumulates +24$", out, re.MULTILINE)


def test_a_registered_network_by_default(capsys):
    assert command("summary", ["--columns", "path"], REGISTRY) == 0
    assert capsys.readouterr().out.startswith("resnet20\ninput 1x3x32x32 float32")


def test_depth_is_by_link(capsys):
    assert [row["path"] for row in rows(capsys, "--depth", "0")] == ["/"]
    assert [row["path"] for row in rows(capsys, "--depth", "1")] == ["/", "/fc"]


def test_columns_in_the_order_asked_for(capsys):
    found = rows(capsys, "--columns", "macs, path")
    assert [list(row.items()) for row in found] == [
        [("macs", "6"), ("path", "/fc")],
        [("macs", "0"), ("path", "/")],
    ]


def test_markdown(capsys):
    assert run("--format", "markdown") == 0
    assert capsys.readouterr().out.startswith("# tiny\n\n")


def test_a_limit_of_rows_is_said(capsys):
    assert run("--limit", "1") == 0
    assert "1 row not shown (--limit 0 shows all)." in capsys.readouterr().out
    for words in (["--limit", "0"], ["--limit", "1", "--format", "markdown"]):
        assert run(*words) == 0
        out = capsys.readouterr().out
        assert "not shown" not in out
        assert "ReLU" in out


def test_classes_and_input_size(capsys):
    words = ["--model", "resnet20", "--classes", "7", "--input-size", "40x48"]
    found = rows(capsys, *words, "--columns", "output_shapes")
    assert found[0]["output_shapes"] == "1x16x40x48"
    assert found[-1]["output_shapes"] == "1x7"


def test_an_own_network(capsys, folder):
    (folder / "own.py").write_text(OWN)
    found = rows(capsys, "--model", "own.py:Net", "--input-shape", "3", "--columns", "function")
    assert [row["function"] for row in found] == ["LinearFunction", "ReLU"]
    with pytest.raises(UsageError, match="give the shape of its input"):
        run("--model", "own.py:Net")


def test_indices(capsys):
    def build():
        return L.EmbedID(9, 4)

    found = rows(capsys, "--input-dtype", "int32", "--columns", "parameters,macs", build=build)
    assert [tuple(row.values()) for row in found] == [("36", "0")]
    with pytest.raises(ProfileError, match=r"give --input-dtype int32$") as error:
        run(build=build)
    assert "\n" not in str(error.value)

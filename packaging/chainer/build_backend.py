"""PEP 517 backend that builds Chainer 7.8.1 from its sdist, the only thing its authors published.

The sdist's setup.py imports pkg_resources, which setuptools 81 (2026) dropped, so that
``pip install chainer`` fails in pip's build isolation. This folder asks for an older
setuptools, fetches the sdist with the user's own pip settings, and builds it as it is.
"""

import os
import subprocess
import sys
import tarfile
import tempfile

from setuptools import build_meta

VERSION = "7.8.1"
SHA256 = "179f06176f8d7a42385bc7811956db04e68213cfe30f5081491b9e2b6ff70de8"


def _unpacked_sdist(folder):
    """Fetch, check and unpack the sdist into folder; return the path of its setup.py's folder.

    pip runs the setup.py of what it downloads. Where it is given a hash, it checks that first.
    """
    name = "chainer-" + VERSION
    requirement = os.path.join(folder, "requirement.txt")
    with open(requirement, "w") as file:
        file.write(f"chainer=={VERSION} --hash=sha256:{SHA256}\n")
    # The inner pip must not take the outer build's hooks for its own.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("_PYPROJECT_HOOKS_", "PEP517_"))
    }
    subprocess.check_call(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--no-binary", ":all:", "--no-build-isolation", "--dest", folder),
            *("--require-hashes", "--requirement", requirement),
        ],
        env=environment,
    )
    with tarfile.open(os.path.join(folder, name + ".tar.gz")) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)  # safe: the hash above names this very file
    return os.path.join(folder, name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build chainer-7.8.1-py3-none-any.whl into wheel_directory; return its file name."""
    wheel_directory = os.path.abspath(wheel_directory)
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(_unpacked_sdist(folder))
        try:
            return build_meta.__legacy__.build_wheel(wheel_directory, config_settings)
        finally:
            os.chdir(here)


def build_sdist(sdist_directory, config_settings=None):
    """Refuse: Chainer's own sdist is on PyPI."""
    raise NotImplementedError("Chainer's sdist is published by its authors; build a wheel instead")

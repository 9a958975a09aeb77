"""The packages. In the wheel the networks of ``models/`` are below ``chainer_profile``."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["chainer_profile*"]), "chainer_profile.models"],
    package_dir={"chainer_profile.models": "models"},
)

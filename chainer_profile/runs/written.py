"""Which files of a folder are ours: no others are replaced or removed.

Recordings, journals and results in JSON say so by their content. For all others the folder holds a
list with the SHA-256 of what was written: a file that somebody has changed since is theirs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import is_empty, make_folder, remove_file, replacing

#: The list, in the folder.
LIST = ".chainer-profile"
_HEAD = "# What chainer-profile wrote here, by SHA-256. It replaces and removes nothing else.\n"
#: Stands in the list before the name of a file that an older version seems to have written: its
#: folders have results and no list. Such files are replaced, but never removed.
_OLDER = "*"
#: Beside these an older version wrote its other files, which end so.
_RESULTS = ("recording.npz", "engines.json", "sweep.json")
_SUFFIXES = (".csv", ".folded", ".html", ".json", ".md", ".pdf", ".png", ".svg", ".tex")
#: How a recording, a journal and a result in JSON begin.
_BEGINS = re.compile(
    rb"PK\x03\x04.{26}self_ns\.npy|chainer-profile journal\n"
    rb'|\s*\{\s*"format":\s*"chainer-profile ',
    re.DOTALL,
)


class Written:
    """What we wrote into a folder, as it stands there now; the folder need not exist.

    ``any`` says whether there is something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._is_listed = (folder / LIST).exists()
        self._list: dict[str, tuple[str, ...]] = {}
        results = []
        if self._is_listed:
            self._list = _read_list(folder / LIST)
        else:
            results = [path for path in self._files() if _says_so(path)]
            if any(path.name in _RESULTS for path in results):
                older = (path for path in self._files() if path.suffix in _SUFFIXES)
                self._list = {f"{_OLDER}{path.name}": (_sha256(path),) for path in older}
        self.any = self._is_listed or bool(results)

    def is_ours(self, name: str, *, older: bool = True) -> bool:
        """Whether a file is there that we wrote (or ``older`` did) and nobody changed since."""
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            return False
        names = (name, f"{_OLDER}{name}") if older else (name,)
        known = [digest for one in names for digest in self._list.get(one, ()) if digest]
        return _says_so(path) or (bool(known) and _sha256(path) in known)

    def refuse(self, is_wanted: Callable[[str], bool]) -> None:
        """Refuse where a file that is not ours stands in the way of what is to be written."""
        for path in self._entries():
            if is_wanted(path.name) and not self.is_ours(path.name):
                raise UsageError(
                    f"{path} was not written by chainer-profile, or was changed since; move "
                    "it away, or name another folder"
                )

    def write(self, contents: Mapping[str, bytes]) -> list[Path]:
        """Write files; none where one that is not ours stands in the way. Returns them."""
        if not contents:
            return []
        make_folder(self.folder)
        self.refuse(contents.__contains__)
        for name, content in contents.items():
            path = self.folder / name
            # The old one stays known until the new one is there, for the case of a kill.
            now = (_sha256(path),) if path.exists() else ()
            self._list.pop(f"{_OLDER}{name}", None)
            self._list[name] = (*now, hashlib.sha256(content).hexdigest())
        self._write_list()
        for name, content in contents.items():
            with replacing(self.folder / name) as file:
                file.write(content)
        return [self.folder / name for name in contents]

    def begin(self) -> None:
        """Give the folder its list: what somebody puts there from now on is theirs."""
        if not self._is_listed:
            self._write_list()

    def remove(self, is_wanted: Callable[[str], bool]) -> None:
        """Remove files of ours with some names; in a folder without a list, none."""
        for path in self._files() if self._is_listed else ():
            if is_wanted(path.name) and self.is_ours(path.name, older=False):
                remove_file(path)

    def remove_all(self) -> None:
        """Remove all that we wrote, and the folder if nothing else is in it."""
        self.remove(lambda name: True)
        if self._is_listed and not self._entries():
            remove_file(self.folder / LIST)
        with suppress(OSError):
            self.folder.rmdir()

    def _write_list(self) -> None:
        lines = [f"{digest}  {name}\n" for name, known in self._list.items() for digest in known]
        with replacing(self.folder / LIST) as file:
            file.write("".join([_HEAD, *lines]).encode())
        self._is_listed = True

    def _entries(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.name != LIST)
        except (FileNotFoundError, NotADirectoryError):  # making the folder says so
            return []
        except OSError as error:
            raise ProfileError(f"{self.folder}: cannot be read ({error.strerror})") from error

    def _files(self) -> list[Path]:
        return [path for path in self._entries() if path.is_file()]


def refuse_foreign(
    folder: Path, force: bool, is_wanted: Callable[[str], bool], what: str = "run"
) -> None:
    """Refuse a folder that the user named, where something in it could be lost.

    Without ``force`` it may hold nothing; with it nothing that stands in the way and is not ours.
    """
    if not folder.is_dir():
        return
    written = Written(folder)
    if not (force or is_empty(folder)):
        if written.any:
            said = f"contains a {what} already; name another folder, or replace it with --force"
        else:
            names = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            said = (
                f"contains {names[0]}{more}, but no {what}; name another folder, or add to it "
                "with --force"
            )
        raise UsageError(f"--out {folder} {said}")
    written.refuse(is_wanted)


def _says_so(path: Path) -> bool:
    """Whether a file's content says that it is ours."""
    with suppress(OSError), path.open("rb") as file:
        begin = file.read(128)
        # A run that is killed at once leaves an empty journal.
        return _BEGINS.match(begin) is not None or (not begin and path.suffix == ".journal")
    return False


def _sha256(path: Path) -> str:
    """Of a file's content; nothing where it cannot be read."""
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _read_list(path: Path) -> dict[str, tuple[str, ...]]:
    """What a list says: every name with the digests of its last contents."""
    listed: dict[str, tuple[str, ...]] = {}
    with suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            if not line.startswith("#"):
                listed[name] = (*listed.get(name, ()), digest)
    return listed

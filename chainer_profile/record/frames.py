"""Frames records with a length and a checksum, so that damage loses only the damaged records."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import IO

#: Begins every record, so that a reader finds the next record after damage. No MessagePack value
#: begins with its first byte.
_MARKER = b"\xc1JR\n"
_FIELDS = struct.Struct("<II")  # section and length
_CHECKSUM = struct.Struct("<I")
_HEADER_NBYTES = len(_MARKER) + _FIELDS.size + _CHECKSUM.size
_CHUNK_NBYTES = 1 << 20


def framed(content: bytes, section: int) -> bytes:
    """Put a header before a record: marker, section, length and checksum.

    The checksum is the CRC-32 of section, length and content.
    """
    fields = _FIELDS.pack(section, len(content))
    return _MARKER + fields + _checksum(fields, content) + content


def whole_nbytes(
    frames: bytearray, max_nbytes: int | None = None, max_records: int | None = None
) -> int:
    """Count the bytes of the complete records at the beginning, up to these limits."""
    limit = len(frames) if max_nbytes is None else max_nbytes
    end = count = 0
    while end + _HEADER_NBYTES <= limit and count != max_records:
        _, length = _FIELDS.unpack_from(frames, end + len(_MARKER))
        if end + _HEADER_NBYTES + length > limit:
            break
        end += _HEADER_NBYTES + length
        count += 1
    return end


class FrameReader:
    """Reads the records in the next ``nbytes`` of a stream; skips and counts damaged bytes."""

    def __init__(self, stream: IO[bytes], nbytes: int) -> None:
        self._stream = stream
        self._at = stream.tell()
        self._end = self._at + nbytes
        self.damaged_nbytes = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the section and the content of each record."""
        while self._at < self._end:
            record = self._read()
            if record is None:
                following = self._find_marker(self._at + 1)
                self.damaged_nbytes += following - self._at
                self._at = following
                self._stream.seek(following)
                continue
            self._at += _HEADER_NBYTES + len(record[1])
            yield record

    def _read(self) -> tuple[int, bytes] | None:
        """Read the record at the stream's position; None if it is damaged or cut off."""
        header = self._stream.read(min(_HEADER_NBYTES, self._end - self._at))
        if len(header) < _HEADER_NBYTES or not header.startswith(_MARKER):
            return None
        fields = header[len(_MARKER) : -_CHECKSUM.size]
        section, length = _FIELDS.unpack(fields)
        if self._at + _HEADER_NBYTES + length > self._end:
            return None
        content = self._stream.read(length)
        is_whole = header.endswith(_checksum(fields, content))
        return (section, content) if is_whole and len(content) == length else None

    def _find_marker(self, at: int) -> int:
        """Find the position of the next marker; return the end if no marker follows."""
        overlap = len(_MARKER) - 1
        while at < self._end:
            self._stream.seek(at)
            chunk = self._stream.read(min(_CHUNK_NBYTES + overlap, self._end - at))
            found = chunk.find(_MARKER)
            if found >= 0:
                return at + found
            if len(chunk) <= overlap:
                break
            at += len(chunk) - overlap
        return self._end


def _checksum(fields: bytes, content: bytes) -> bytes:
    return _CHECKSUM.pack(zlib.crc32(content, zlib.crc32(fields)))

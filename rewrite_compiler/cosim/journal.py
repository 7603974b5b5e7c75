"""The journal of a run: its finished samples, on disk before they are reported, so that an interrupted run can resume.

Append only. Every line is authenticated, with all lines before it, by a MAC under the user's own key; a complete line with another
MAC is refused. The lines of a batch are written at once, so that a kill loses none, and synced to disk once a second against
power loss. An incomplete end, as a kill or a full disk leaves it, is truncated, and those samples run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import math
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any

from ..disk_cache import user_key
from ..errors import InputError, UsageError
from ..intake import MalformedText, parse_json
from .journal_records import FinishedBatch, Line, batch_of_lines

SCHEMA = "flexmatch log of samples 2"
SEAL = 32  # digits of a line's seal
LINE = re.compile(rb"[0-9a-f]{%d} \{.*\}\n" % SEAL)
TORN_HEADER = re.compile(rb'[0-9a-f]{%d} \{"schema":"flexmatch log of samples [^\n]*' % SEAL)
LINE_BYTES = 1 << 24  # of what one batch says of all its offloads
SECONDS = 1.0  # between two times that the log is forced to disk, which takes as long as a small batch


class Journal:
    """An open journal, locked against other runs; `batches` are those that it holds."""

    def __init__(self, path: Path, key: Mapping[str, Any], offloads: Collection[str] | None = None) -> None:
        """Open or create the journal of the run that `key` identifies; with `offloads`, every batch must have statistics of exactly these.

        Raises:
            UsageError: F100, the file cannot be written, is no regular file, or another run holds it.
            InputError: C106, the file is no journal, or belongs to another run or user.
        """
        self.path, self.offloads = path, offloads
        self.batches: list[FinishedBatch] = []
        self.last_sync, self.is_synced = -math.inf, False
        self.secret, self.seal = user_key() or b"", b""  # of the last line
        with self._as_usage_errors():
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            self._lock()
            with self._as_usage_errors():
                self._read({"schema": SCHEMA, **key})
        except BaseException:
            os.close(self.file)
            raise

    def _lock(self) -> None:
        if not S_ISREG(os.fstat(self.file).st_mode):
            raise UsageError("F100", "a log must be a regular file", place=str(self.path))
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sentence = "another run writes this log"
            raise UsageError("F100", sentence, place=str(self.path), help="wait for it, or name another file") from None

    @contextlib.contextmanager
    def _as_usage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            sentence = f"the log cannot be written: {(error.strerror or str(error)).lower()}"
            remedy = "what was finished before is kept; free space or name another file"
            raise UsageError("F100", sentence, place=str(self.path), help=remedy) from None

    def _read(self, key: Mapping[str, Any]) -> None:
        head = os.pread(self.file, LINE_BYTES, 0)
        lines = self._valid_lines()
        header = next(lines, None)
        if header is None:
            if head and not _is_torn_header(head):
                raise InputError("C106", "the file is not a log of samples", place=str(self.path), help="name another file")
            os.ftruncate(self.file, 0)
            self._write([dict(key)])
            return
        _refuse_another_run(header[1], key, str(self.path))
        (end, _, self.seal), open_lines = header, list[Line]()
        for offset, line, seal in lines:
            open_lines.append(line)
            if len(open_lines) > key.get("samples", math.inf) + 1:
                raise self._foreign_lines()
            if "batch" in line:
                self.batches.append(self._batch(open_lines, key))
                end, self.seal, open_lines = offset, seal, []
        os.ftruncate(self.file, end)

    def _batch(self, lines: Sequence[Line], key: Mapping[str, Any]) -> FinishedBatch:
        """Return the batch of these lines: writing it again must give the same lines, and its samples must be the next ones."""
        first_sample = self._finished_samples()
        with contextlib.suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            batch = batch_of_lines(lines)
            is_same = list(map(_text, batch.lines())) == list(map(_text, lines))
            is_next = batch.first == first_sample < first_sample + batch.samples <= key.get("samples", math.inf)
            if is_same and is_next and (self.offloads is None or {*batch.statistics} == {*self.offloads}):
                return batch
        raise self._foreign_lines()

    def _finished_samples(self) -> int:
        return sum(b.samples for b in self.batches)

    def _foreign_lines(self) -> InputError:
        sentence = f"the log has lines that no run wrote, behind {self._finished_samples()} samples"
        return InputError("C106", sentence, place=str(self.path), help="delete it, or name another file")

    def append(self, batch: FinishedBatch) -> None:
        """Write a batch, and sync to disk when the last sync is a while ago.

        Raises:
            UsageError: F100, the file cannot be written.
        """
        with self._as_usage_errors():
            self._write(batch.lines())
        self.batches.append(batch)

    def _write(self, lines: list[Line]) -> None:
        data, seal = b"", self.seal
        for text in map(_text, lines):
            seal = self._seal_of(text, seal)
            data += seal + b" " + text + b"\n"
        start = os.fstat(self.file).st_size
        try:
            while data:
                data = data[os.write(self.file, data) :]
            if time.monotonic() - self.last_sync > SECONDS:
                os.fsync(self.file)
                self.last_sync = time.monotonic()
            self.seal = seal
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.file, start)
            raise

    def _seal_of(self, text: bytes, previous_seal: bytes) -> bytes:
        return hmac.digest(self.secret, previous_seal + text, "sha256").hex()[:SEAL].encode()

    def _valid_lines(self) -> Iterator[tuple[int, Line, bytes]]:
        """Yield the lines up to the first that is torn or too long, each with the offset of its end and its seal."""
        offset, seal = 0, b""
        with os.fdopen(self.file, "rb", closefd=False) as lines:
            lines.seek(0)
            while (raw := lines.readline(LINE_BYTES)).endswith(b"\n"):
                text = raw[SEAL + 1 : -1]
                seal = self._seal_of(text, seal)
                if not LINE.fullmatch(raw):
                    return
                try:
                    line = parse_json(text)
                except MalformedText:
                    return
                if not hmac.compare_digest(raw[:SEAL], seal):
                    sentence = f"the log has a line that this user's runs did not write, behind {self._finished_samples()} samples"
                    raise InputError("C106", sentence, place=str(self.path), help="delete it, or name another file")
                offset += len(raw)
                yield offset, line, seal

    def sync(self) -> None:
        """Sync the journal to disk.

        Raises:
            UsageError: F100, the file cannot be written.
        """
        with self._as_usage_errors():
            os.fsync(self.file)
        self.is_synced = True

    def close(self) -> None:
        """Release the journal, synced as far as possible; delete it when it holds no sample."""
        with contextlib.suppress(OSError):
            if not self.batches:
                os.unlink(self.path)
            elif not self.is_synced:
                os.fsync(self.file)
        os.close(self.file)


def _text(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode()


def _is_torn_header(raw: bytes) -> bool:
    """Tell whether these bytes are the incomplete first line of a journal; one that breaks off before it says so may be anybody's file."""
    return TORN_HEADER.fullmatch(raw) is not None


def _refuse_another_run(header: Mapping[str, Any], key: Mapping[str, Any], place: str) -> None:
    for name, value in key.items():
        if header.get(name) != value:
            sentence = f"the log belongs to another run: its {name} is {_value_text(header.get(name))}, not {_value_text(value)}"
            raise InputError("C106", sentence, place=place, help="delete it, or give the plan, data and options it was made with")


def _value_text(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text

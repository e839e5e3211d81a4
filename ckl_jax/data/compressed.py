"""Files, plain or compressed, read in blocks, lines and rows of CSV; archives of arrays.

A file that ends too early or is damaged is a `UserError` that names the byte. No file takes more
memory than its size on disk and a fixed amount warrant, whatever it expands to.
"""

import bz2
import csv
import io
import math
import os
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from ckl_jax.errors import UserError, if_missing, nearest_name
from ckl_jax.files import os_errors

BLOCK_BYTES = 1 << 18
# A line, page or entity that is longer is refused before it fills the memory. Wikipedia's articles
# have 2 MB at most, and Wikidata's entities 5.
RECORD_BYTES = 1 << 24
_BLANK_BYTES = 1 << 22
_LARGER = "or give a larger --record-limit where the command has one for such files."
ANY_LENGTH = sys.maxsize  # of files that a command wrote
_BZ2, _GZIP = b"BZh", b"\x1f\x8b"
_UNREAD = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zX": "compressed by xz",
    b"7z\xbc\xaf": "a 7z archive",
}
# Arrays and tables above both, in bytes and relative to their file, are refused unread.
_EXPANDED_BYTES, _EXPANSION = 1 << 28, 100


def read_blocks(
    path: str | os.PathLike, start: int = 0, stop: int | None = None, threads: int = 1
) -> Iterator[bytes]:
    """Yields the decompressed content of a file, whose format its first bytes show.

    Args:
      start, stop: the part to read, in bytes of the file as it is on disk. In a compressed file
        both are where a stream begins, as its index says (multistream bzip2).
      threads: that decode a whole bzip2 file block by block, where indexed_bzip2 is installed.

    Raises:
      UserError: the file cannot be read, is of another format, is truncated or is damaged.
    """
    with os_errors(path, "read"), open(path, "rb") as f:
        head = f.read(4)
        if what := _UNREAD.get(head):
            raise UserError(
                f"{os.fspath(path)} is {what}, which is not read; unpack it, or compress it by "
                "gzip or bzip2."
            )
        f.seek(start)
        if head.startswith(_BZ2):
            alone = _decompressed(path, f, stop, bz2.BZ2Decompressor, _decode_bz2)
            whole = threads > 1 and not start and stop is None
            yield from _by_threads(path, threads, alone) if whole else alone
        elif head.startswith(_GZIP):
            yield from _decompressed(path, f, stop, lambda: zlib.decompressobj(31), _decode_gzip)
        else:
            yield from _raw(f, stop)


def _by_threads(path, threads: int, alone: Iterator[bytes]) -> Iterator[bytes]:
    """Decodes the blocks of a bzip2 file at once; where that fails, one decoder starts again.

    Args:
      threads: as many blocks, of 900 kB, are in memory.
      alone: of one decoder, which names the damaged byte; all is of it without indexed_bzip2.
    """
    done = 0
    try:
        import indexed_bzip2

        with indexed_bzip2.open(os.fspath(path), parallelization=threads) as f:
            while block := f.read(4 * BLOCK_BYTES):
                done += len(block)
                yield block
            return
    except (ImportError, RuntimeError, ValueError):
        pass
    for block in alone:
        yield block[done:]
        done = max(0, done - len(block))


def is_multistream(path: str | os.PathLike) -> bool:
    """Whether the file is bzip2, which can be read from the start of any of its streams."""
    with os_errors(path, "read"), open(path, "rb") as f:
        return f.read(3) == _BZ2


def _raw(f: IO[bytes], stop: int | None) -> Iterator[bytes]:
    left = None if stop is None else stop - f.tell()
    while block := f.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)):
        left = None if left is None else left - len(block)
        yield block


def _decode_bz2(decoder, block: bytes) -> Iterator[bytes]:
    """Decompresses `block` in parts of bounded size, whatever its compression ratio."""
    yield decoder.decompress(block, 4 * BLOCK_BYTES)
    while not decoder.eof and not decoder.needs_input:
        yield decoder.decompress(b"", 4 * BLOCK_BYTES)


def _decode_gzip(decoder, block: bytes) -> Iterator[bytes]:
    yield decoder.decompress(block, 4 * BLOCK_BYTES)
    while not decoder.eof and decoder.unconsumed_tail:
        yield decoder.decompress(decoder.unconsumed_tail, 4 * BLOCK_BYTES)


def _decompressed(path, f: IO[bytes], stop: int | None, new_decoder, decode) -> Iterator[bytes]:
    """Decodes stream after stream; a file may not end inside one, and so its part."""
    decoder, inside, indexed = None, False, f.tell() > 0 or stop is not None
    for block in _raw(f, stop):
        while block:
            if not inside:
                block = block.lstrip(b"\0") if decoder else block  # padding between gzip members
                if not block:
                    break
                decoder, inside = new_decoder(), True
            try:
                yield from filter(None, decode(decoder, block))
            except (OSError, EOFError, zlib.error) as e:
                what = f"damaged near byte {f.tell() - len(block):,} of the compressed file ({e})"
                raise UserError(
                    f"{path}: {what}, or its index is another dump's; fetch both again."
                    if indexed
                    else f"{path}: {what}; fetch it again."
                ) from e
            inside = not decoder.eof
            block = decoder.unused_data if decoder.eof else b""
    if inside and indexed:
        raise UserError(
            f"{path}: at byte {f.tell():,}, where a part should end, a compressed stream does not: "
            "the file is cut off, or its index is another dump's; fetch both again."
        )
    if inside:
        raise UserError(
            f"{path}: the compressed data stop at byte {f.tell():,}, before their end; the file is "
            "truncated, fetch it again."
        )


def read_lines(
    path: str | os.PathLike, limit: int = RECORD_BYTES, threads: int = 1
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (line number from 1, byte offset in the decompressed file, line without newline).

    `threads` as for `read_blocks`.

    Raises:
      UserError: as `read_blocks`; or a line is longer than `limit` bytes, or nothing but empty
        lines comes for long, which a small file can expand to.
    """
    if limit < 1:
        raise UserError(f"--record-limit is {limit}; give 1 or more.")
    number, offset, parts, size, blank = 1, 0, [], 0, 0
    for block in read_blocks(path, threads=threads):
        blank = 0 if block.strip() else blank + len(block)
        if blank > _BLANK_BYTES:
            raise UserError(
                f"{os.fspath(path)}, line {number}: over {_BLANK_BYTES:,} bytes of empty lines, "
                "which no text has; is it the right file?"
            )
        lines = block.split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join([*parts, lines[0]])
            parts, size = [], 0
        last = lines.pop()
        for line in lines:
            if len(line) > limit:
                raise too_long(path, f"line {number}", limit)
            yield number, offset, line
            number += 1
            offset += len(line) + 1
        parts.append(last)
        size += len(last)
        if size > limit:
            raise too_long(path, f"line {number}", limit)
    if size:
        yield number, offset, b"".join(parts)


def text_lines(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[str]:
    """Yields the lines of a UTF-8 file with their ends, plain or compressed.

    A byte order mark, with which some editors begin a file, is not part of the text.

    Raises:
      UserError: as `read_lines`, or the file is not UTF-8.
    """
    for number, _, line in read_lines(path, limit):
        try:
            text = line.decode() + "\n"
        except UnicodeDecodeError as e:
            raise UserError(
                f"{os.fspath(path)}, line {number}: not UTF-8 (the byte 0x{line[e.start]:02x}); "
                "save the file as UTF-8."
            ) from e
        text = text.removeprefix("\ufeff") if number == 1 else text
        if "\r" in text:  # which may end a line too
            yield from io.StringIO(text, newline="")
        else:
            yield text


def csv_rows(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of its last line, cells) of each non-empty row of a CSV file.

    Raises:
      UserError: as `text_lines`, or the file is not CSV, or a row of several lines is longer than
        `limit`.
    """
    size = 0

    def lines() -> Iterator[str]:
        nonlocal size
        for line in text_lines(path, limit):
            size += len(line)
            if size > limit + 1:  # and the end of the line
                raise UserError(
                    f"{begin}: the row that begins here is longer than {limit:,} characters; "
                    f"{unclosed}, {_LARGER}"
                )
            yield line
        if size:
            raise UserError(f"{begin}: the row that begins here does not end; {unclosed}.")

    unclosed = "end the cell of it that begins with a quote by one"
    begin = f"{os.fspath(path)}, line 1"
    csv.field_size_limit(sys.maxsize)  # an article is longer than the default allows
    # Strict: a quote that does not end its cell shows that one before it never ended.
    reader = csv.reader(lines(), strict=True)
    try:
        for cells in reader:
            begin, size = f"{os.fspath(path)}, line {reader.line_num + 1}", 0
            if cells:
                yield reader.line_num, cells
    except csv.Error as e:
        raise UserError(
            f"{begin}: the row that begins here is not CSV ({e}); a cell that begins with a quote "
            "ends with one, and has each quote within it twice."
        ) from e


def csv_table(
    path: str | os.PathLike,
    columns: Sequence[str] = (),
    limit: int = RECORD_BYTES,
    renamed: Sequence[tuple[str, str]] = (),
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (number of its last line, {column: cell}) of each row of a CSV file with a header.

    Args:
      renamed: (what a column is called in some files, its name).

    Raises:
      UserError: as `csv_rows`, or there is no header, it lacks one of `columns` or names a column
        twice, or a row has more or fewer cells than it.
    """
    rows = csv_rows(path, limit)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    if not header:
        raise UserError(f"{path} is empty: it has no header.")
    for other, name in renamed:
        header = header if name in header else [name if h == other else h for h in header]
    for column in columns:
        if column not in header:
            near = nearest_name(column, [h for h in header if h not in columns])
            advice = f" If {near!r} is that column, rename it to {column!r}." if near else ""
            raise UserError(
                f"{path} has no column {column!r}; its header has {', '.join(header)}.{advice}"
            )
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path}: its header names the column {twice!r} twice; rename one.")
    for line, cells in rows:
        if len(cells) != len(header):
            raise UserError(
                f"{path}, line {line}: {len(cells)} cells where the header has {len(header)}; "
                f"{_advice(header)}"
            )
        yield line, dict(zip(header, cells, strict=True))


def _advice(header: Sequence[str]) -> str:
    """What to do about a table of which a row has more or fewer cells than its header."""
    mark = next((mark for mark in ";\t" if len(header) == 1 and mark in header[0]), "")
    if mark:
        return f"its header is parted by {mark!r}; save it with commas."
    return "quote cells that hold commas or line ends."


def too_long(path: str | os.PathLike, where: str, limit: int) -> UserError:
    """The error of a record of more than `limit` bytes."""
    return UserError(
        f"{os.fspath(path)}, {where}: it is longer than {limit:,} bytes, which no record may be; "
        f"cut it up, {_LARGER}"
    )


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file by their names; none may hold pickled objects.

    Each array is as large as its header says, and all are checked before one is read: a header may
    promise more than the file has, and 100 MB of zip can expand to 100 GB.

    Raises:
      UserError: the file cannot be read.
      ValueError: it is not an archive of numpy arrays, is damaged, or expands to too much.
    """
    with os_errors(path, "read"):
        try:
            with zipfile.ZipFile(path) as archive:
                check_expansion(path, sum(e.file_size for e in archive.filelist))
                for entry in archive.filelist:
                    _check_header(archive, entry)
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        # TokenError: of a header; RuntimeError: encrypted, or compressed in a way not known here.
        except (zipfile.BadZipFile, tokenize.TokenError, RuntimeError) as e:
            raise ValueError(str(e)) from e


def read_parquet(
    path: str | os.PathLike, columns: frozenset[str] = frozenset()
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file as {column: value}, in constant memory.

    Args:
      columns: those to read; none given are all.

    Raises:
      UserError: the file is none, a row is too long or holds what Python does not, or pyarrow is
        not installed.
    """
    with if_missing(
        f"{path}: Parquet needs the package 'pyarrow': pip install 'ckl-jax[parquet]', or save the "
        "table as JSON lines."
    ):
        import pyarrow
        import pyarrow.parquet
    number, where = 0, ""
    with os_errors(path, "read"):
        try:
            table = pyarrow.parquet.ParquetFile(path)
            wanted = [n for n in table.schema_arrow.names if not columns or n in columns]
            groups = map(table.metadata.row_group, range(table.num_row_groups))
            check_expansion(path, sum(group.total_byte_size for group in groups))
            # Few rows: equal values are stored once, and are made of the file a batch at a time.
            for batch in table.iter_batches(batch_size=32, columns=wanted):
                where = f", rows {number + 1} to {number + len(batch)}"
                for i in range(len(batch) if batch.nbytes > RECORD_BYTES else 0):
                    if batch.slice(i, 1).nbytes > RECORD_BYTES:
                        raise too_long(path, f"row {number + i + 1}", RECORD_BYTES)
                yield from batch.to_pylist()
                number += len(batch)
        except (pyarrow.ArrowException, ValueError, OverflowError) as e:
            reason = str(e).splitlines()[0][:100]
            raise UserError(f"{path}{where}: it cannot be read as Parquet ({reason}).") from e


def bounded(
    path: str | os.PathLike, rows: Iterable[tuple[str, dict[str, Any]]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, row) as they are while they may be kept in memory.

    Raises:
      UserError: they are far larger than a compressed file can honestly hold.
    """
    size = 0
    for where, row in rows:
        size += sum(map(sys.getsizeof, row.values()))
        try:
            check_expansion(path, size)
        except ValueError as e:
            raise UserError(f"{where}: {e}; it does not fit into memory.") from e
        yield where, row


def check_expansion(path: str | os.PathLike, size: int) -> None:
    """Raises `ValueError` if `size` bytes are far more than a compressed file can honestly hold."""
    if size > max(_EXPANDED_BYTES, _EXPANSION * os.path.getsize(path)):
        raise ValueError(f"it expands to {size:,} bytes, over {_EXPANSION} times its size")


def _check_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Raises `ValueError` unless a member is an array of the size that its header declares."""
    with archive.open(entry) as f:
        version = np.lib.format.read_magic(f)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        shape, _, dtype = read.get(version, np.lib.format.read_array_header_2_0)(f)
        held = entry.file_size - f.tell()
    if dtype.hasobject:
        raise ValueError(f"{entry.filename} holds pickled objects, which are not read")
    if not dtype.itemsize or math.prod(shape) * dtype.itemsize != held:
        raise ValueError(f"{entry.filename} claims {dtype}{list(shape)} but has {held:,} bytes")

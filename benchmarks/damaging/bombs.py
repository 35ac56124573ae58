"""`python -m benchmarks.damaging.bombs [--only NAME]`: small files that unpack to much, and the peak memory of each command on them.

Each is to be used, or refused by name, in less than `MOST` megabytes and `SECONDS` seconds.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, run

import brotli
import click
import zstandard

URL = "http://a.test/"
MB = 1 << 20
SIZE = 300  # MB that a bomb unpacks to
MOST = 400  # MB of memory
SECONDS = 60  # of the processor, of a command; ten times as many where it waits


def _packed(wbits: int, parts: Iterator[bytes]) -> bytes:
    z = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return b"".join(z.compress(part) for part in parts) + z.flush()


def _brotli(parts: Iterator[bytes]) -> bytes:
    z = brotli.Compressor(quality=3)
    return b"".join(z.process(part) for part in parts) + z.finish()


def _zstd(parts: Iterator[bytes]) -> bytes:
    z = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(z.compress(part) for part in parts) + z.flush()


def _gzip(parts: Iterator[bytes]) -> bytes:
    return _packed(31, parts)


def _much(piece: bytes = b"a") -> Iterator[bytes]:
    return (piece * (MB // len(piece)) for _ in range(SIZE))


def _head(kind: bytes, size: int, more: bytes = b"", uri: bytes = URL.encode()) -> bytes:
    media = b"application/http;msgtype=response" if kind == b"response" else b"text/markdown"
    return (
        b"WARC/1.1\r\nWARC-Type: %b\r\nWARC-Record-ID: <urn:uuid:00000001-0000-4000-8000-000000000000>\r\n"
        b"WARC-Target-URI: %b\r\nWARC-Date: 2025-01-04T10:13:20Z\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        % (kind, uri, more, media, size)
    )


def _answer(coding: bytes, size: int, media: bytes = b"text/html") -> bytes:
    packed = b"Content-Encoding: %b\r\n" % coding if coding else b""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n" % (media, packed, size)


def _page(coding: str, body: bytes, media: bytes = b"text/html") -> bytes:
    head = _answer(coding.encode(), len(body), media)
    return gzip.compress(_head(b"response", len(head) + len(body)) + head + body + b"\r\n\r\n", mtime=0)


def _record(pack: Callable[[Iterator[bytes]], bytes]) -> bytes:
    def parts() -> Iterator[bytes]:
        head = _answer(b"", SIZE * MB)
        yield _head(b"response", len(head) + SIZE * MB) + head
        yield from _much(b"<p>x")
        yield b"\r\n\r\n"

    return pack(parts())


def _long_head() -> bytes:
    return _gzip(iter([b"WARC/1.1\r\nWARC-Type: response\r\nX: ", *_much(), b"\r\n\r\n"]))


def _options() -> bytes:
    import base64

    value = base64.b64encode(_packed(15, iter([b'{"a":"', *_much(), b'"}'])))
    more = b"WARC-Stillweb-Extractor: x/1\r\nWARC-Stillweb-Options: zlib:%b\r\n" % value
    return _page("", b"<p>x") + gzip.compress(_head(b"conversion", 1, more) + b"x\r\n\r\n", mtime=0)


def _pdf() -> bytes:
    stream = zlib.compress(b"BT /F1 12 Tf (a) Tj ET\n" + b"0 0 m " * (SIZE * MB // 6), 9)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(out)
    return _page("", out + b"xref\n0 6\n0000000000 65535 f \n" + rows + end, b"application/pdf")


def _members(*large: str) -> bytes:
    """A zip with a small archive, and members that unpack to much."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        z.writestr("archive/a.warc.gz", _page("", b"<p>x"))
        for name in large:
            with z.open(name, "w", force_zip64=True) as file:
                file.write(b'{"a":"')
                for part in _much():
                    file.write(part)
    return out.getvalue()


def _lying() -> bytes:
    """A member of a zip that unpacks to more than the zip says."""
    data = bytearray(_members("datapackage.json"))
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    return bytes(data)


def _index(line: bytes) -> bytes:
    """A WACZ of another program, whose index is packed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/a.warc.gz", _page("", b"<p>x"))
        z.writestr("indexes/index.cdx.gz", _gzip(_much(line)))
    return out.getvalue()


def _zipped_har() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z, z.open("x.har", "w", force_zip64=True) as file:
        for part in _much(b"["):
            file.write(part)
    return out.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "record.warc.gz": lambda: _record(_gzip),
    "record.warc.zst": lambda: _record(_zstd),
    "head.warc.gz": _long_head,
    "gzip.warc.gz": lambda: _page("gzip", _gzip(_much())),
    "tags.warc.gz": lambda: _page("gzip", _gzip(_much(b"<b>x</b>"))),
    "deflate.warc.gz": lambda: _page("deflate", _packed(-15, _much())),
    "br.warc.gz": lambda: _page("br", _brotli(_much())),
    "zstd.warc.gz": lambda: _page("zstd", _zstd(_much())),
    "twice.warc.gz": lambda: _page("gzip, gzip", gzip.compress(_gzip(_much()), 9)),
    "br of br.warc.gz": lambda: _page("br, br", brotli.compress(_brotli(_much()))),
    "json.warc.gz": lambda: _page("gzip", _gzip(_much(b'{"token":"abcdefgh12345678"},')), b"application/json"),
    "options.warc.gz": _options,
    "pdf.warc.gz": _pdf,
    "package.wacz": lambda: _members("datapackage.json"),
    "pages.wacz": lambda: _members("pages/pages.jsonl", "indexes/index.cdxj", "datapackage-digest.json"),
    "lying.wacz": _lying,
    "index of zeros.wacz": lambda: _index(b"\0"),
    "index of lines.wacz": lambda: _index(b"a 2 {}\n"),
    "packed.har.zip": _zipped_har,
}  # fmt: skip
COMMANDS: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "FILE", "--json"),
    "views": ("ls", "FILE", "--views"),
    "lookup": ("lookup", "FILE", URL),
    "fetch": ("fetch", "FILE", URL),
    "fetch dom": ("fetch", "FILE", URL, "--content", "dom"),
    "verify": ("verify", "FILE"),
    "verify --secrets": ("verify", "FILE", "--secrets"),
    "import": ("import", "FILE", "-o", "OUT"),
    "seal": ("seal", "OUT"),
    "search": ("search", "FILE", "hello"),
    "tables": ("fetch", "FILE", URL, "--content", "tables", "-o", "OUT-tables"),
    "text": ("text", "FILE"),
    "diff": ("diff", "FILE", "FILE"),
    "replay": ("replay", "FILE", "--", "curl", "-sS", "-o", "/dev/null", URL),
    "replay, packed": ("replay", "FILE", "--", "curl", "-sS", "-o", "/dev/null", "-H", "Accept-Encoding: gzip, br", URL),
}  # fmt: skip


# A small process starts the command and waits for it: a child begins with the peak of the process that it was forked from.
WATCH = """
import os, subprocess, sys, threading
program = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
ending = threading.Timer(10 * float(sys.argv[1]), program.kill)
ending.start()
_, status, usage = os.wait4(program.pid, 0)
ending.cancel()
late = usage.ru_utime + usage.ru_stime > float(sys.argv[1])
print(usage.ru_maxrss, -9 if late else os.waitstatus_to_exitcode(status))
"""


def peak(command: tuple[str, ...], file: Path, folder: Path) -> tuple[int, int, str]:
    """Return the peak memory of a command in MB, its exit code (-9 where it took too long) and the end of what it said."""
    words = [
        {"FILE": str(file), "OUT": str(folder / "out"), "OUT-tables": str(folder / "tables")}.get(word, word)
        for word in command
    ]
    env = os.environ | {"STILLWEB_CACHE": str(folder / "cache")}
    with (folder / "said").open("w+b") as said:
        watched = [sys.executable, "-S", "-c", WATCH, str(SECONDS), sys.executable, "-m", "stillweb", *words]
        done = run(watched, stdout=PIPE, stderr=said, env=env, check=True, text=True)
        kilobytes, code = map(int, done.stdout.split()[-2:])
        said.seek(0)
        text = said.read().decode(errors="replace")
    return kilobytes >> 10, code, text


def measure(names: list[str], folder: Path, commands: list[str]) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield the bomb, the command, its peak in MB, its exit code, and what is wrong with that ("")."""
    for name in names:
        place = folder / re.sub(r"\W", "-", name)
        place.mkdir()
        file = place / name
        file.write_bytes(BOMBS[name]())
        for command in commands:
            if command == "seal" and not (place / "out").is_dir():
                continue
            most, code, text = peak(COMMANDS[command], file, place)
            wrong = "memory" if most > MOST else "hang or crash" if code < 0 or code > 4 else ""
            yield name, command, most, code, "traceback" if "Traceback" in text else wrong


@click.command()
@click.option("--only", default="", help="Bombs whose name this regular expression finds.")
def main(only: str) -> None:
    """Print a table of peaks in MB; exit code 1 if one is too high."""
    names = [name for name in BOMBS if re.search(only, name)]
    faults = 0
    click.echo("| bomb | " + " | ".join(COMMANDS) + " |\n|---" * 1 + "|---" * len(COMMANDS) + "|")
    row: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="stillweb-bombs-") as folder:
        for name, command, most, _, wrong in measure(names, Path(folder), list(COMMANDS)):
            faults += bool(wrong)
            row[command] = f"{most} {wrong}".strip()
            if command == list(COMMANDS)[-1]:
                click.echo(f"| {name} | " + " | ".join(row.get(one, "") for one in COMMANDS) + " |")
                row = {}
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

"""Reads what a recorder wrote with an outside reader (warcio), bytes as they lie in the file."""

from dataclasses import dataclass
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator


@dataclass
class Recorded:
    """A request and its answer."""

    url: str
    method: str
    request_headers: list[tuple[str, str]]
    request_body: bytes
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    kind: str
    warc: dict[str, str]

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def asked(self, name: str) -> str | None:
        return next((v for n, v in self.request_headers if n.lower() == name.lower()), None)

    @property
    def events(self) -> tuple[int, int]:
        begin, _, end = self.warc["WARC-Stillweb-Events"].partition("-")
        return int(begin), int(end)


def recorded(snapshot: Path) -> list[Recorded]:
    """All exchanges of a snapshot directory in the order of the file; revisits have an empty body."""
    requests: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {}
    found: list[Recorded] = []
    for path in sorted((snapshot / "archive").glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                head = record.rec_headers
                if record.rec_type == "request":
                    http = record.http_headers
                    requests[head.get_header("WARC-Record-ID")] = (
                        http.protocol,
                        http.headers,
                        record.raw_stream.read(),
                    )
                elif record.rec_type in ("response", "revisit"):
                    method, headers, body = requests[head.get_header("WARC-Concurrent-To")]
                    found.append(
                        Recorded(
                            url=head.get_header("WARC-Target-URI"),
                            method=method,
                            request_headers=headers,
                            request_body=body,
                            status=int(record.http_headers.get_statuscode()),
                            headers=record.http_headers.headers,
                            body=record.raw_stream.read(),
                            kind=record.rec_type,
                            warc=dict(head.headers),
                        )
                    )
    return found


def raw_bytes(snapshot: Path) -> bytes:
    """Every byte of the archive, unpacked: for looking for what must not be there."""
    import gzip

    return b"".join(
        gzip.decompress(path.read_bytes()) for path in sorted((snapshot / "archive").glob("*.warc.gz"))
    )


def metadata(snapshot: Path) -> list[tuple[str, bytes]]:
    """Address and content of the metadata records."""
    found = []
    for path in sorted((snapshot / "archive").glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "metadata":
                    found.append((record.rec_headers.get_header("WARC-Target-URI"), record.raw_stream.read()))
    return found

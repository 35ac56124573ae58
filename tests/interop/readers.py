"""Payload digests of every capture of a WACZ, as other people's readers compute them from the stored bytes."""

import hashlib
import io
import json
import subprocess
import zipfile
from pathlib import Path

from tests.support.waiting import STARTS

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers" / "bin"

Digests = dict[tuple[str, int], str]  # (file, offset) -> hex SHA-256 of the payload


def unpack(sealed: Path, folder: Path) -> Path:
    """The WARC files of a WACZ, in a folder."""
    with zipfile.ZipFile(sealed) as package:
        package.extractall(folder)
    return folder / "archive"


def with_warcio(archive: Path) -> tuple[Digests, Digests]:
    """Digests of responses as read, and those that the headers of responses and revisits name."""
    from warcio.archiveiterator import ArchiveIterator

    read: Digests = {}
    named: Digests = {}
    for path in sorted(archive.glob("*.warc.gz")):
        with path.open("rb") as file:
            records = ArchiveIterator(file, check_digests="raise")
            for record in records:
                if record.rec_type not in ("response", "revisit"):
                    continue
                payload = hashlib.sha256(record.raw_stream.read()).hexdigest()
                place = (path.name, records.get_record_offset())  # asking for it ends the record
                named[place] = record.rec_headers.get_header("WARC-Payload-Digest").partition(":")[2].lower()
                if record.rec_type == "response":
                    read[place] = payload
    return read, named


def with_fastwarc(archive: Path) -> tuple[Digests, int]:
    """Digests of responses as read, and how many records failed FastWARC's own check of block or payload."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    read: Digests = {}
    failed = 0
    for path in sorted(archive.glob("*.warc.gz")):
        for record in ArchiveIterator(io.BytesIO(path.read_bytes()), parse_http=False):
            failed += not record.verify_block_digest()
            if record.record_type == WarcRecordType.response:
                record.parse_http()
                failed += not record.verify_payload_digest()
                read[(path.name, record.stream_pos)] = hashlib.sha256(record.reader.read()).hexdigest()
    return read, failed


def with_pywb(archive: Path) -> tuple[Digests, Digests]:
    """Digests of payloads as pywb serves them (originals of revisits included), and as it indexed them."""
    command = [PEERS / "python", "-W", "ignore", ROOT / "tests" / "interop" / "read_with_pywb.py", archive]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STARTS)
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    read = {(row["filename"], row["offset"]): row["payload"] for row in rows}
    return read, {(row["filename"], row["offset"]): row["indexed"].partition(":")[2] for row in rows}


def lines_of(archive: Path) -> list[str]:
    """The index lines that cdxj-indexer and pywb's own indexer write for WARC files."""
    files = sorted(archive.glob("*.warc.gz"))
    words = ([PEERS / "cdxj-indexer", *files], [PEERS / "cdx-indexer", "-j", *files])
    runs = [subprocess.run(one, capture_output=True, text=True, check=True, timeout=STARTS) for one in words]
    return [line for run in runs for line in run.stdout.splitlines()]


def disagreements(sealed: Path, folder: Path) -> list[str]:
    """Where warcio, FastWARC, pywb and Stillweb do not read the same payload; empty when all agree."""
    from stillweb.snapshots import Snapshot

    archive = unpack(sealed, folder)
    warcio_read, named = with_warcio(archive)
    fast_read, failed = with_fastwarc(archive)
    pywb_read, pywb_indexed = with_pywb(archive)
    found = [f"FastWARC: {failed} records fail its own check"] if failed else []
    if warcio_read != fast_read:
        found.append("warcio and FastWARC read other payloads")
    count = 0
    with Snapshot.open(sealed) as snapshot:
        for capture in snapshot.captures():
            count += 1
            place = (capture.filename.rpartition("/")[2], capture.offset)
            ours = hashlib.sha256(snapshot.read(capture).body).hexdigest()
            if ours != capture.digest.partition(":")[2]:
                found.append(f"{capture.url}: digest of what we serve is not that of the index")
            for name, said in (("named", named), ("pywb read", pywb_read), ("pywb indexed", pywb_indexed)):
                if said.get(place) != ours:
                    found.append(f"{capture.url}: {name} {said.get(place)}, served {ours}")
            if place in warcio_read and warcio_read[place] != ours:
                found.append(f"{capture.url}: warcio read {warcio_read[place]}, served {ours}")
    if count != len(named):
        found.append(f"{count} captures, but warcio counts {len(named)}")
    return found


def wacz_validate(sealed: Path) -> str:
    """Return the output of `wacz validate`, empty if the file is valid."""
    shown = subprocess.run(
        [PEERS / "wacz", "validate", "-f", sealed], capture_output=True, text=True, timeout=STARTS
    )
    return "" if shown.returncode == 0 else shown.stdout + shown.stderr

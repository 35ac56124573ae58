"""datapackage.json and pages.jsonl: a snapshot's description of itself (WACZ 1.1.1), and its id.

https://specs.webrecorder.net/wacz/1.1.1/
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from isal import isal_zlib

from stillweb.snapshots._os.random_access import ByteSource, FileSource, chunks, hash_place, lines_in
from stillweb.snapshots.dates import UNDATED, iso_date, timestamp_of
from stillweb.snapshots.decompression import ZLIB, inflate
from stillweb.snapshots.index.blocks import stamp_of as stamp_of_steps
from stillweb.snapshots.index.blocks import steps_of
from stillweb.snapshots.index.build import stamp_for
from stillweb.snapshots.index.cdxj import Index
from stillweb.snapshots.index.index_cache import Hashes
from stillweb.snapshots.notes import DamageNote, note
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.shapes import convert, must_be_unicode, well_formed
from stillweb.snapshots.view import View
from stillweb.snapshots.warc.appending import write_whole
from stillweb.snapshots.warc.container import (
    ARCHIVE,
    DIGEST,
    INDEX,
    PACKAGE,
    PAGES,
    STEPS,
    Container,
    open_directory,
)

if TYPE_CHECKING:
    from stillweb.snapshots.identity.rules import RuleSet

WACZ_VERSION = "1.1.1"
VIEW_MEDIA = "application/vnd.stillweb.view+json"  # media type of the metadata record that describes a view
PAGES_HEADER = b'{"format":"json-pages-1.0","id":"pages","title":"All pages"}\n'
MOST_PAGES = 500_000  # maximum number of listed pages, about 300 MB in memory
LONGEST_PAGE = 1 << 22  # bytes of a line of a page list
LONGEST_OPTIONS = 1 << 24  # uncompressed bytes
LONG_FIELD = 4000  # characters above which a field value is compressed
EPOCH = "1980-01-01T00:00:00Z"  # date of a snapshot without records

_IDENTITY = re.compile(rb'"id":"([0-9a-f]{64})"\}$')


def view_to_json(view: View) -> dict[str, Any]:
    """Return a view as a JSON object; the inverse of `view_from_json`."""
    return asdict(view)


def view_from_json(value: Mapping[str, Any]) -> View:
    """Return the view that a JSON object describes. Raises ValueError if it describes none."""
    if not isinstance(value, Mapping):
        raise ValueError(f"a view is not an object, but a {type(value).__name__}")
    view = convert(dict(value), View)
    convert((view.state or {}).get("fields", []), list[dict[str, Any]])
    must_be_unicode(value)
    return view


def pack_options(options: Mapping[str, Any]) -> str:
    """Serialize options as a field value: JSON, compressed if it is long.

    Other readers limit the length of a record's head.
    """
    text = json.dumps(options, sort_keys=True)
    if len(text) <= LONG_FIELD:
        return text
    return "zlib:" + base64.b64encode(isal_zlib.compress(text.encode(), 3)).decode()


def unpack_options(text: str) -> dict[str, Any]:
    """Parse the options in a field value; the inverse of `pack_options`.

    Raises ValueError, and TooLarge for a decompression bomb.
    """
    if text.startswith("zlib:"):
        text = inflate(base64.b64decode(text[5:]), ZLIB, "a record's options", LONGEST_OPTIONS).decode()
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("options that nest too deeply") from error
    return value if isinstance(value, dict) else {}


def page_line(view: View) -> bytes:
    """Return the line of a view in pages.jsonl. Other tools read its id, url, ts and title."""
    page = {
        "id": view.id,
        "url": view.address,
        "ts": page_time(view.timestamp),
        "title": view.title,
        "stillweb": view_to_json(view),
    }
    return json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass") + b"\n"


def page_time(text: str) -> str:
    """Return an ISO 8601 time, from ISO 8601 or from 14 to 17 digits."""
    return iso_date(text) if text.isdigit() else text or EPOCH


def pages_of(lines: Iterable[bytes], notes: list[str]) -> Iterator[View]:
    """Yield the views in a pages.jsonl of any tool, skipping lines that are no pages. Notes tell of our views that can't be read."""
    for number, line in enumerate(lines, 1):
        try:
            page = json.loads(line)
            if "stillweb" in page:
                try:
                    yield view_from_json(page["stillweb"])
                except ValueError as error:
                    note(notes, f"{PAGES}: line {number}: a view that can't be read: {error}")
            elif isinstance(page.get("url"), str):
                when = timestamp_of(str(page.get("ts", "")))
                url, title = well_formed(page["url"]), well_formed(str(page.get("title") or ""))
                yield View(url, url, url, title, timestamp="" if when == UNDATED else when)
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue


def page_lists(container: Container) -> list[str]:
    """Return the names of the page lists of a container, the main one first."""
    names = (n for n in container.members if n.startswith("pages/") and n.endswith(".jsonl"))
    return sorted(names, key=lambda name: (name != PAGES, name))


def listed_views(container: Container, notes: list[str]) -> list[View]:
    """Return the views in the page lists, except in a list of a Stillweb snapshot with a wrong hash. Adds to `notes`."""
    faulty = _with_another_hash(container) if container.own else ()
    lists = [container.members[name] for name in page_lists(container) if name not in faulty]
    return list(islice((view for place in lists for view in pages_of(page_lines(place), notes)), MOST_PAGES))


def page_lines(place: ByteSource) -> Iterator[bytes]:
    """Yield the lines of a page list, which may be larger than the memory."""
    return lines_in(chunks(place), LONGEST_PAGE)


def page_list_faults(container: Container) -> list[str]:
    """Return the defects of page lists.

    A wrong hash is a defect only in snapshots of other tools: there, the list exists nowhere else.
    """
    found: list[str] = [
        DamageNote(f"{name}: its hash is not the one in {PACKAGE}: the files that it lists may be damaged")
        for name in ([] if container.own else _with_another_hash(container))
    ]
    large = [p for name in page_lists(container) if (p := container.members[name]).size > MOST_PAGES]
    pages = sum(piece.count(b"\n") for place in large for piece in chunks(place))
    if pages > MOST_PAGES:
        found.append(DamageNote(f"pages/: lists {pages} pages; the first {MOST_PAGES} of them are read"))
    return found


def _with_another_hash(container: Container) -> list[str]:
    told: dict[str, Any] = {}
    listed = container.package.get("resources")
    for resource in listed if isinstance(listed, list) else ():
        if isinstance(resource, dict) and str(resource.get("hash")).startswith("sha256:"):
            told[str(resource.get("path"))] = resource["hash"]
    lists = [name for name in page_lists(container) if name in told]
    return [name for name in lists if hash_place(container.members[name]) != told[name]]


def identities(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the record identities in index lines."""
    for line in lines:
        found = _IDENTITY.search(line, len(line) - 73)
        if found:
            yield found[1]


def snapshot_id(lines: Iterable[bytes], profile: Profile | None, rules: Any) -> str:
    """Return the id: SHA-256 over sorted record identities, profile and rules (`RuleSet.to_json`).

    The id does not depend on the order of files, the distribution of records over them, or the time of
    sealing.
    """
    value = hashlib.sha256(b"stillweb snapshot 1\n")
    # As bytes rather than hex, because there may be millions; both sort alike.
    for found in sorted({bytes.fromhex(found.decode()) for found in identities(lines)}):
        value.update(found.hex().encode() + b"\n")
    rest = {"profile": profile.to_json() if profile else None, "rules": rules}
    value.update(json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())
    return value.hexdigest()


def rules_from(stored: Sequence[Any]) -> RuleSet:
    """Return the rules stored at sealing; of several layers those that all have, and each one's own."""
    from stillweb.snapshots.identity.rules import RuleSet, builtin

    if False in stored:  # see `Container.rules`
        return RuleSet(())
    found = [RuleSet.from_json(value) for value in stored if isinstance(value, dict)]
    if len(found) < 2:
        return found[0] if found else builtin()
    kept = [r for r in found[0].rules if all(any(r.id == o.id for o in other.rules) for other in found)]
    joined = RuleSet(tuple(r for r in kept if not r.own))
    # a layer over it need not repeat them
    for text in dict.fromkeys(text for one in found for text in one.own):
        joined = joined.with_own(text)
    return joined


def layered_id(ids: Iterable[str]) -> str:
    """Return the id of layered snapshots, lowest first.

    The order counts, because it decides which capture is served.
    """
    return hashlib.sha256("\n".join(["stillweb layers 1", *ids]).encode()).hexdigest()


def describe(
    files: Mapping[str, ByteSource],
    *,
    software: str,
    created: str,
    own: Mapping[str, Any],
    hashes: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return datapackage.json for files by full name. `hashes` holds the known hashes by that name."""
    resources = [
        {
            "name": name.rpartition("/")[2],
            "path": name,
            "hash": hashes.get(name) or hash_place(files[name]),
            "bytes": files[name].size,
        }
        for name in sorted(files)
    ]
    package = {
        "profile": "data-package",
        "wacz_version": WACZ_VERSION,
        "created": created,
        "modified": created,
        "software": software,
        "resources": resources,
        "stillweb": dict(own),
    }
    return json.dumps(package, indent=2, ensure_ascii=False).encode() + b"\n"


def digest_of(package: bytes) -> bytes:
    """Return datapackage-digest.json."""
    value = {"path": PACKAGE, "hash": "sha256:" + hashlib.sha256(package).hexdigest()}
    return json.dumps(value, indent=2).encode() + b"\n"


def all_files(container: Container) -> dict[str, ByteSource]:
    """Return the files that datapackage.json lists: all but itself and its digest."""
    files = {ARCHIVE + name: place for name, place in container.archives.items()}
    files |= {n: p for n, p in container.members.items() if n not in (PACKAGE, DIGEST)}
    return files


def newest(lines: Iterable[bytes]) -> str:
    """Return the time of the newest record, as the time of the snapshot.

    So sealing a snapshot twice gives the same file.
    """
    stamp = max((line.split(b" ", 2)[1] for line in lines), default=b"")
    return page_time(stamp.decode()) if stamp else EPOCH


def write_package(
    path: Path,
    *,
    profile: Profile | None,
    settings: Mapping[str, Any],
    software: str,
    rules: Any = None,
    lines: Sequence[bytes] | None = None,
    hashes: Hashes = MappingProxyType({}),
) -> str:
    """Write datapackage.json and its digest into a directory with a finished index. Return the id.

    `lines` are the index lines if they are in memory; `hashes` holds known hashes of archive files.
    """
    container = open_directory(path)
    try:
        place = container.members[INDEX]
        crc = 0
        for piece in chunks(place):
            crc = isal_zlib.crc32(piece, crc)
        index = Index(place)  # read line by line, as often as needed: it may be larger than the memory

        def listed() -> Iterable[bytes]:
            return index.lines() if lines is None else lines

        if steps := steps_of(place):
            write_whole(path / STEPS, [steps])
            container.members[STEPS] = FileSource(path / STEPS)
        elif old := container.members.pop(STEPS, None):
            old.close()
            (path / STEPS).unlink()
        if rules is None:
            from stillweb.snapshots.identity.rules import builtin

            rules = builtin().to_json()
        own = {
            "id": snapshot_id(listed(), profile, rules),
            "index": stamp_for(container.archives, index.size, crc, stamp_of_steps(steps) if steps else None),
            "profile": profile.to_json() if profile else None,
            "settings": dict(settings),
            "rules": rules,
        }
        known = {
            ARCHIVE + name: hashes[name][1]
            for name, archive in container.archives.items()
            if name in hashes and hashes[name][0] == archive.size  # files are only ever appended to
        }
        created = newest(listed())
        package = describe(all_files(container), software=software, created=created, own=own, hashes=known)
    finally:
        container.close()
    write_whole(path / PACKAGE, [package])
    write_whole(path / DIGEST, [digest_of(package)])
    return str(own["id"])

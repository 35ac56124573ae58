"""Full-text search over frozen texts: tantivy (BM25), with tokens for all scripts, Chinese ones by jieba.

The order of hits is total: score, then address. A text that a URL and views of its site have is found at
the URL alone.
Scores are reproducible: the documents are added in the order of their addresses, by one thread, into one segment, and
equal words are equal tokens.
"""

from __future__ import annotations

import bisect
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import unicodedata
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from isal import isal_zlib

from stillweb.snapshots.errors import FULL_DISK, MissingCapability, UsageError
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.view import OF_A_URL

TITLE_BOOST = 2.0
HEAP = 2_000_000_000  # bytes; a limit, not a reservation
SHOWN = 200_000  # code points of a text that are kept for snippets
WRITTEN = 1 << 20  # bytes of such texts that are written at once
NAMES = "names.json"  # addresses, titles and numbers of duplicates, beside tantivy's files
SNIPPET = 200  # code points of a snippet, about as on a result page
_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_KANA = r"\u3040-\u30ff\u31f0-\u31ff"
_HANGUL = r"\uac00-\ud7af"
_UNSPACED = r"\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u108f\u1780-\u17d3"  # Thai to Khmer
# vowel signs and points, which `\w` leaves out: Latin, Hebrew, Arabic and the scripts of India
_MARKS = r"\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0df3"
_LATIN = r"a-z\u00df-\u024f\u0250-\u02af\u1e00-\u1eff"
_LETTER = rf"(?:[^\W_{_CJK}{_KANA}{_HANGUL}{_UNSPACED}]|[{_MARKS}])"
_TOKEN = re.compile(rf"[{_CJK}]+|[{_KANA}]+|[{_HANGUL}]+|[{_UNSPACED}]+|{_LETTER}+(?:'(?:(?!\d){_LETTER})+)*")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)*")
_IS_PAIRED = re.compile(rf"[{_KANA}{_HANGUL}{_UNSPACED}]")
_IS_CJK = re.compile(rf"[{_CJK}]")
# articles and pronouns that French, Italian and Catalan join to the next word
_ELISION = re.compile(
    r"\A(?:[cdjlmnst]|qu|(?:jus|lors|puis|quoi)qu|(?:d[ae]|a|co|ne|su|que)ll|un|quest|(?:de|a)gl)'(?=..)"
)
_GREEK = r"\u03b1-\u03c9"
# points that Hebrew and Arabic are mostly written without, and the stroke that lengthens an Arabic word
_POINTS = r"\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670"
_ACCENTS = re.compile(
    rf"(?<=[{_LATIN}{_GREEK}])[\u0300-\u036f]+|(?<=[аеиоуыэюя])[\u0300\u0301]|(?<=е)\u0308|[{_POINTS}]+"
)
_PLAIN = str.maketrans(
    {"æ": "ae", "œ": "oe", "ß": "ss", "þ": "th", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l"}
    | {"ŧ": "t", "ŋ": "n", "’": "'", "‘": "'", "ʼ": "'", "ʻ": "'", "ς": "σ", "\u00ad": ""}
)
_NOT_ASCII = re.compile(r".?[^\x00-\x7f]+", re.DOTALL)
_MARKUP_LINK = re.compile(r"(?<=\])\((?:[^()\s]|\([^()\s]*\))*\)")
_MARKUP = re.compile(r"[\[\]*`#|>]+|-{3,}")
_SPACE = re.compile(r"\s+")
_JIEBA = threading.Lock()


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result: `rank` counts from 1, `score` is BM25, `snippet` is plain text around the words found."""

    address: str
    title: str
    snippet: str
    score: float
    rank: int


def _jieba() -> Any:
    with _JIEBA:
        import jieba

        cutter = jieba.dt
        if not cutter.initialized:
            # Its own way takes longer, and keeps the words in a file that all users of a machine share and could change.
            with cutter.get_dict_file() as file:
                fields = file.read().decode().split()
            words, counts = fields[::3], [*map(int, fields[1::3])]
            beginnings = (word[:n] for word in words for n in range(1, len(word)))
            cutter.FREQ = dict.fromkeys(beginnings, 0) | dict(zip(words, counts, strict=True))
            cutter.total = sum(counts)
            cutter.initialized = True
    return jieba


def tokens(text: str) -> Iterator[str]:
    """Yield the index tokens of a text: folded, without elisions and plural s, Chinese cut into words and parts."""
    if text.isascii():
        return map(stem, _ASCII_TOKEN.findall(text.lower()))
    return _wide_tokens(folded(text))


def folded(text: str) -> str:
    """Return the text in NFKC and lower case, Latin and Greek letters without accents and ligatures, apostrophes as `'`.

    Of Cyrillic letters, marks of stress go, and ё is е; of Hebrew and Arabic ones, points go.
    """
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text).lower()
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", apart).translate(_PLAIN))


def _wide_tokens(text: str) -> Iterator[str]:
    for word in _TOKEN.findall(text):
        if word.isascii():
            yield stem(word)
        elif _IS_CJK.match(word):
            # jieba may cut a query differently from a text: index the shorter words within, too
            yield from (part for part in _jieba().cut_for_search(word, HMM=False) if part.strip())
        elif _IS_PAIRED.match(word):
            yield from (word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            yield stem(word)


@functools.lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """Strip elisions, apostrophes, English plurals and possessives only.

    "penguins" finds "penguin", "l'art" finds "art", "Hawai'i" finds "Hawaii".
    """
    word = _ELISION.sub("", word.removesuffix("'s"), count=1).replace("'", "") if "'" in word else word
    if len(word) <= 3 or not word.isascii() or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def plain_text(markdown: str) -> str:
    """Return markdown without its marks and link targets, on one line, for snippets."""
    return _SPACE.sub(" ", _MARKUP.sub(" ", _MARKUP_LINK.sub("", markdown))).strip()


def host_names(address: str) -> list[str]:
    """Return the host of an address and the domains above it, which `site:` may name."""
    try:
        host = (urlsplit(address).hostname or "").lower()
    except ValueError:  # brackets without an IPv6 address
        return []
    labels = host.split(".")
    return [".".join(labels[i:]) for i in range(len(labels))] if host else []


class SearchIndex:
    """Search index over texts, in a temporary directory that is deleted on `close` or garbage collection.

    `texts` are read once and must come in the order of their addresses (as from `Snapshot.texts`). `progress` is
    called with the number of texts done. Files in a `folder` of the caller stay, and `kept` opens them again. Searches
    are safe from many threads. Raises MissingCapability if the disk is full or a file can't be opened, OSError if
    that is in the caller's folder.
    """

    def __init__(
        self,
        texts: Iterable[FrozenText],
        *,
        progress: Callable[[int], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._addresses: list[str] = []
        self._titles: list[str] = []
        self._again: set[int] = set()  # numbers of texts that are found at another address of their site
        with machine_errors(folder), ExitStack() as unless_built:
            place = folder or Path(tempfile.mkdtemp(prefix="stillweb-search-"))
            if folder is None:
                unless_built.callback(shutil.rmtree, place, ignore_errors=True)
            self._open(place)
            self._shown = SnippetTexts(place / "shown")
            self._remove = weakref.finalize(self, _forget, self._shown, None if folder else str(place))
            unless_built.callback(self._remove)
            self._build(texts, progress)
            if folder is not None:
                self._shown.save()
                names = json.dumps([self._addresses, self._titles, sorted(self._again)], ensure_ascii=True)
                (folder / NAMES).write_text(names, encoding="ascii")
            self._index.reload()
            self._searcher = self._index.searcher()
            unless_built.pop_all()

    @classmethod
    def kept(cls, folder: Path) -> SearchIndex:
        """Open the index in a folder, whose files must be unchanged. Raises OSError, ValueError."""
        index = cls.__new__(cls)
        index._open(folder)
        index._shown = SnippetTexts.saved(folder / "shown")
        index._remove = weakref.finalize(index, _forget, index._shown, None)
        index._addresses, index._titles, again = json.loads((folder / NAMES).read_text(encoding="ascii"))
        index._again = set(again)
        index._searcher = index._index.searcher()
        return index

    def _open(self, folder: Path) -> None:
        import tantivy

        self._tantivy = tantivy
        self._folder = str(folder)
        builder = tantivy.SchemaBuilder()
        for name in ("title", "body", "inurl"):
            builder.add_text_field(name, tokenizer_name="whitespace", index_option="position")
        for name in ("site", "filetype"):
            builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
        builder.add_unsigned_field("number", stored=False, indexed=False, fast=True)
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema, path=self._folder)

    def __len__(self) -> int:
        return len(self._addresses)

    def close(self) -> None:
        """Remove the files, unless they are in a folder of the caller."""
        self._remove()

    def _build(self, texts: Iterable[FrozenText], progress: Callable[[int], None] | None) -> None:
        # one thread and memory for all documents, so that they are in one segment in their order
        writer = self._index.writer(heap_size=HEAP, num_threads=1)
        site, entries = "", dict[tuple[str, str], int]()  # of the current site: title and text -> number
        for number, text in enumerate(sorted_by_address(texts)):
            shown = plain_text(text.markdown)
            body = " ".join(tokens(shown))
            kind = "pdf" if text.pages is not None else "html"
            address = text.address
            document = self._tantivy.Document(
                title=" ".join(tokens(text.title)),
                body=body,
                inurl=" ".join(tokens(address)),
                site=host_names(address),
                filetype=kind,
            )
            document.add_unsigned("number", number)
            writer.add_document(document)
            self._shown.add(shown[:SHOWN])
            self._addresses.append(address)
            self._titles.append(text.title or address)
            if (current := "/".join(address.split("/", 3)[:3])) != site:
                site, entries = current, {}
            words = text.title, _digest(shown)
            first = entries.setdefault(words, number)
            if first != number:
                entries[words], goes = sorted((first, number), key=lambda n: (_level(self._addresses[n]), n))
                if _level(self._addresses[goes]):
                    self._again.add(goes)
            if progress is not None:
                progress(number + 1)
        self._shown.flush()
        writer.commit()
        writer.wait_merging_threads()

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Return the best `limit` texts for a query, best first; of equal scores the lower address first.

        Words are joined by OR; `"a phrase"`, `-word`, `site:`, `intitle:`, `inurl:` and `filetype:` must hold.
        """
        parsed = parse_query(query)
        built = self._query(parsed)
        if built is None or limit < 1 or not self._addresses:
            return []
        found = self._best(built, limit)
        words = [*parsed.words, *(word for phrase in parsed.phrases for word in phrase)]
        hits: list[Hit] = []
        for rank, (score, number) in enumerate(found, 1):
            shown = snippet(self._shown[number], words)
            hits.append(Hit(self._addresses[number], self._titles[number], shown, score, rank))
        return hits

    def _best(self, query: Any, limit: int) -> list[tuple[float, int]]:
        """Return the first `limit` hits of the total order; query more while a tie may go on after the last hit."""
        asked = limit + 1
        while True:
            hits = self._searcher.search(query, asked, count=False).hits
            numbers: list[Any] = self._searcher.fast_field_values("number", [place for _, place in hits])
            numbered = [
                (score, number)
                for (score, _), number in zip(hits, numbers, strict=True)
                if number not in self._again
            ]
            whole = len(hits) < asked or (len(numbered) >= limit and hits[-1][0] < numbered[limit - 1][0])
            if whole or asked >= len(self._addresses):
                break
            asked = min(asked * 4, len(self._addresses))
        numbered.sort(key=lambda hit: (-hit[0], hit[1]))
        return [(round(score, 5), number) for score, number in numbered[:limit]]

    def _query(self, parsed: Query) -> Any:
        tantivy = self._tantivy
        term = tantivy.Query.term_query
        occur = tantivy.Occur

        def either(word: str) -> Any:
            title = tantivy.Query.boost_query(term(self._schema, "title", word), TITLE_BOOST)
            return [(occur.Should, title), (occur.Should, term(self._schema, "body", word))]

        def together(name: str, words: list[str]) -> Any:
            if len(words) == 1:
                return term(self._schema, name, words[0])
            return tantivy.Query.phrase_query(self._schema, name, words)

        clauses: list[tuple[Any, Any]] = [clause for word in parsed.words for clause in either(word)]
        clauses += [(occur.Must, together("body", phrase)) for phrase in parsed.phrases]
        for name, value in parsed.musts:
            clauses.append(
                (occur.Must, tantivy.Query.const_score_query(term(self._schema, name, value), 0.0))
            )
        if not clauses:
            return None
        clauses += [(occur.MustNot, together(name, phrase)) for name, phrase in parsed.nots if any(phrase)]
        if parsed.words and (parsed.musts or parsed.phrases):
            # beside Must clauses, Should clauses are optional: require one of the words
            some = tantivy.Query.boolean_query([clause for word in parsed.words for clause in either(word)])
            clauses = [(occur.Must, some), *clauses[2 * len(parsed.words) :]]
        return tantivy.Query.boolean_query(clauses)


def _level(address: str) -> int:
    """Return the level of an address: 0 for a URL, 1 for a view of it, 2 for another answer.

    Of texts of a site that are the same, the one with the lowest level is found, and all of level 0.
    """
    found = OF_A_URL.search(address)
    return 0 if found is None else 1 if found[1] == "view" else 2


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class SnippetTexts:
    """File of the texts that snippets are cut from, each compressed by itself and read by number from any thread.

    `add` all of them and `flush` before the first is read. `close` doesn't delete the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("w+b", buffering=WRITTEN)  # noqa: SIM115 (closed by its owner)
        self._ends = array("Q", [0])  # end offset of each text, after the start of the first

    def save(self) -> None:
        """Write the offsets beside the file, for `saved`."""
        self.flush()
        with Path(f"{self._file.name}.ends").open("wb") as out:
            self._ends.tofile(out)

    @classmethod
    def saved(cls, path: str | os.PathLike[str]) -> SnippetTexts:
        """Open saved texts for reading. Raises OSError, ValueError."""
        shown = cls.__new__(cls)
        shown._ends = array("Q")
        shown._ends.frombytes(Path(f"{os.fspath(path)}.ends").read_bytes())
        shown._file = Path(path).open("rb")  # noqa: SIM115 (closed by its owner)
        return shown

    def add(self, text: str) -> None:
        packed = isal_zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
        self._file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))

    def flush(self) -> None:
        """Write buffered texts; call it after the last `add` and before the first read."""
        self._file.flush()

    def __getitem__(self, number: int) -> str:
        start, end = self._ends[number], self._ends[number + 1]
        packed = os.pread(self._file.fileno(), end - start, start)
        return isal_zlib.decompress(packed).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._file.close()


def _forget(shown: SnippetTexts, folder: str | None) -> None:
    with suppress(OSError):  # bytes that can't be flushed aren't needed any more
        shown.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def sorted_by_address(texts: Iterable[FrozenText]) -> Iterator[FrozenText]:
    """Yield the texts unchanged. Raises UsageError if they are not in the order of their addresses."""
    previous = None
    for text in texts:
        place = text.address.replace(" ", "%20").replace("\n", "%0A")  # as an index sorts them
        if previous is not None and place < previous:
            raise UsageError(f"texts must come by address: {text.address!r} after {previous!r}")
        previous = place
        yield text


@dataclass(frozen=True, slots=True)
class Query:
    """Parsed query: words, phrases, (field, token) pairs that must match, (field, phrase) pairs that must not."""

    words: tuple[str, ...] = ()
    phrases: tuple[list[str], ...] = ()
    musts: tuple[tuple[str, str], ...] = ()
    nots: tuple[tuple[str, list[str]], ...] = ()

    @property
    def finds(self) -> bool:
        """True if the query has words, phrases or fields to look for; other queries find nothing."""
        return bool(self.words or self.phrases or self.musts)


_QUERY_PART = re.compile(r'(-?)(?:(site|intitle|inurl|filetype):)?(?:"([^"]*)"|(\S+))')


def parse_query(query: str) -> Query:
    """Parse the operators of Google's that a snapshot can support; everything else is words."""
    words: list[str] = []
    phrases: list[list[str]] = []
    musts: list[tuple[str, str]] = []
    nots: list[tuple[str, list[str]]] = []
    for minus, name, quoted, bare in _QUERY_PART.findall(query):
        value = quoted or bare
        if name in ("site", "filetype"):
            found = [value.lower().removeprefix("www.").strip("./")]
        else:
            found = list(tokens(value))
        if minus and bare[:1] != "-":
            place = {"intitle": "title"}.get(name, name) or "body"
            # Chinese may be cut differently in a text, so exclude each token of the word
            nots += [(place, found)] if quoted or bare.isascii() else [(place, [token]) for token in found]
        elif name:
            musts += [({"intitle": "title"}.get(name, name), token) for token in found if token]
        elif quoted and found:
            phrases.append(found)
        else:
            words += [token for token in found if bare not in ("OR", "AND", "|")]
    return Query(tuple(dict.fromkeys(words)), tuple(phrases), tuple(musts), tuple(nots))


def _folded_in_place(shown: str) -> tuple[str, Callable[[int], int]]:
    """Return the folded text and a function from its offsets to those of `shown`."""
    pieces: list[str] = []
    ours, theirs = [0], [0]  # offsets in the folded text and in `shown`, from where both run alike
    length = end = 0
    for run in _NOT_ASCII.finditer(shown):
        low = folded(run[0])
        between = shown[end : run.start()].lower()
        pieces += (between, low)
        length += len(between)
        end = run.end()
        if len(low) != len(run[0]):
            ours += (length, length + len(low))
            theirs += (run.start(), end)
        length += len(low)
    pieces.append(shown[end:].lower())

    def origin(at: int) -> int:
        nearest = bisect.bisect_right(ours, at) - 1
        return min(theirs[nearest] + at - ours[nearest], *theirs[nearest + 1 : nearest + 2], len(shown))

    return "".join(pieces), origin


def snippet(shown: str, words: Iterable[str], size: int = SNIPPET) -> str:
    """Return about `size` code points of a text, around the place with the most of `words`, cut at white space."""
    low, origin = _folded_in_place(shown)
    places: list[tuple[int, str]] = []
    for word in dict.fromkeys(words):
        at = low.find(word)
        if at < 0 and word.isalpha() and (written := re.search("'?".join(word), low)):
            at, word = written.start(), written[0]  # O'Brien, whose token is obrien
        for _ in range(8):
            if at < 0:
                break
            if at == 0 or not low[at - 1].isalnum() or not word.isascii():
                places.append((origin(at), word))
            at = low.find(word, at + len(word))
    places.sort()
    best, most = 0, 0
    for at, _ in places:
        here = len({word for place, word in places if at <= place < at + size - 20})
        if here > most:
            best, most = at, here
    start = max(0, best - size // 6)
    if start:
        space = shown.find(" ", start, best)
        start = space + 1 if space >= 0 else start
    end = min(len(shown), start + size)
    if end < len(shown):
        space = shown.rfind(" ", start + size // 2, end)
        end = space if space >= 0 else end
    return ("... " if start else "") + shown[start:end].strip() + (" ..." if end < len(shown) else "")


_SYSTEM = re.compile(r"(?:os error|Os \{ code:) (\d+)")  # errno in the text of tantivy's ValueError


@contextmanager
def machine_errors(folder: Path | None) -> Iterator[None]:
    """Turn the system's errors within the `with` block (full disk, too many open files) into MissingCapability, or into OSError.

    OSError is raised if the caller gave the `folder` and so can choose another, and if there are too many open files,
    where another folder wouldn't help.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        number = _number(error)
        if number is None:
            raise
        text = os.strerror(number) if number != errno.EIO else "a file could not be written"
        if folder is not None or number in (errno.EMFILE, errno.ENFILE):
            raise OSError(number, text, str(folder or "the search index")) from error
        raise MissingCapability(
            f"the search index can't be written to the directory for temporary files: {text}; make room there, or name "
            "another one in TMPDIR"
        ) from error


def _number(error: OSError | ValueError) -> int | None:
    """Return the errno of an error of the index; None for other errors, such as those in reading the texts."""
    if isinstance(error, OSError):
        return error.errno if error.errno in FULL_DISK else None
    if found := _SYSTEM.search(str(error)):
        return int(found[1])
    return errno.EIO if "io::Error" in str(error) else None  # from tantivy's thread, without an errno

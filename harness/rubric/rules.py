"""Compiler of side-cars, by rule, from the English of `rubric.normalization`, and what a rubric states itself.

Later records of SGR-Bench state `columns`, `row_key` and `fields`, beside sentences. Each rule that matches records the sentence it read. Sentences that no rule reads are kept in `unread`,
supposed values in `assumed`, so that no guess is hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from stillweb.harness.rubric.sidecar import FIELD_TYPES, FieldRule, FieldType, Rubric, Unit, as_rubric
from stillweb.harness.rubric.spelling import name_form
from stillweb.harness.task import Task

_SETTINGS = ("field_separator", "record_separator", "header_row", "schema")
_STATED = ("columns", "row_key", "fields", "ordered")  # members that need no reading
# members of a rubric that say which rows belong to the answer, and none how cells are compared
_NO_RULES = ("inclusion_conditions", "exclusion_conditions", "normalization", "status")
# What a sentence says that makes two different texts one value: a rule that nobody applies then costs points.
_JOINS = re.compile(
    r"\b(?:round\w*|toleran\w*|within|approximat\w*|ignor\w*|disregard\w*|allow\w*|accept\w*|treat\w*|equivalen\w*"
    r"|interchangeab\w*|synonym\w*|normali[sz]\w*|strip\w*|remov\w*|dropp?\w*|omit\w*|trailing|leading|insensitive"
    r"|convert\w*|abbreviat\w*|expand\w*|either|optional\w*|(?:may|can) be|regardless|counts? as|(?:the )?same as)\b",
    re.I,
)
_NO_MATTER = re.compile(
    r"\b(?:(?:do(?:es)?|need|is|are) not|doesn't|don't|needn't|isn't|aren't) (?:matter|count|significant|required|needed|relevant)\b",
    re.I,
)
_SENTENCE_END = re.compile(r"(?<=[.;。；!])\s+(?=\S)|\n+")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|vs|etc|cf|approx)\.$", re.I)
_QUOTED = re.compile(r"(?<!\w)[\"'“‘`「]([^\"'“”‘’`「」]+)[\"'”’`」](?!\w)")
_KEY_TOPIC = re.compile(r"row.?key|primary.?key|^key|join.?key|row.?identity|alignment", re.I)
_DEDUP_TOPIC = re.compile(r"dedup|unique", re.I)
_KEY_SAYS = re.compile(
    r"\brow keys?\b|\bkeyed (?:by|on)\b|\balign(?:ed)? (?:rows )?(?:by|on)\b|\bidentified by\b", re.I
)
_DEDUP_SAYS = re.compile(r"\bde-?duplicat|\bunique (?:by|per|on)\b|\bone row per\b", re.I)
_ORDER_TOPIC = re.compile(r"(?:^|_|\b)(?:row_)?(?:order|ordering|sort|sorting|rank|ranking)(?:_|\b|$)", re.I)
_ORDER_SAYS = re.compile(r"\bsort(?:ed|ing)?\b|\border(?:ed|ing)?\b|\bascending\b|\bdescending\b", re.I)
_UNORDERED = re.compile(
    r"order(?:ing)?(?: of [\w ]{1,30}?)? (?:does not|doesn't|is not|isn't|need not|is of no|has no"
    r"|is (?:irrelevant|insignificant|unimportant|ignored|optional)|(?:should|must|can|may|will) be (?:ignored|disregarded))\b"
    r"|\bany order\b|\bunordered\b|\border.?(?:insensitive|independent)\b|\bno (?:particular|specific|fixed) order\b"
    r"|\b(?:regardless|irrespective) of (?:the )?(?:row )?order|\b(?:ignor|disregard)(?:e|es|ing)? (?:the )?(?:row )?order"
    r"|\b(?:need not|needn't|not required to|(?:do(?:es)? not|don't|doesn't) (?:have|need) to) be (?:sorted|ordered)\b"
    r"|\bsorting is (?:not (?:required|needed|necessary)|optional|unnecessary)\b",
    re.I,
)
_TIES = re.compile(r"\bt(?:ies?|ied)\b", re.I)  # a rule for tied rows does not hold for all rows
_NEGATED = re.compile(r"\b(?:not|never|no|without|neither|nor|unless|except|don't|doesn't)\b", re.I)
_TYPE_SAYS: tuple[tuple[FieldType, re.Pattern[str]], ...] = (
    (
        "date",
        re.compile(
            r"\bYYYY-MM-DD\b|\bISO.?8601\b|\b(?:calendar|ISO) dates?\b|\bdates? (?:in|as|format)\b", re.I
        ),
    ),
    ("id_list", re.compile(r"\b(?:list|set) of \w*\s?(?:ids?|identifiers?|codes?|accessions?)\b", re.I)),
    (
        "decimal",
        re.compile(r"\bdecimals?\b|\bfloat(?:ing)?\b|\bnumeric(?:al|ally)?\b|\bas (?:a )?numbers?\b", re.I),
    ),
    ("integer", re.compile(r"\bintegers?\b|\bwhole numbers?\b|\bthousands? separators?\b", re.I)),
)
_UPPER = re.compile(r"\bupper.?cased?\b|\bcapital letters\b", re.I)
_TURNS_INTO = re.compile(
    r"\b(?:treat|normali[sz]e|map|convert|interpret|write|rewrite|read|count|accept|allow)s?\b.*?"
    r"\b(?:as|to|into|for|in place of|instead of)\b\s*(?=[\"'“‘`「])|->|→",
    re.I,
)
_WRITTEN_AS = re.compile(
    r"\b(?:may|can|could|might) (?:also )?be (?:written|given|spelled|abbreviated) as\b", re.I
)
# Matched against a sentence with its quoted parts replaced by "": a word for "the same", or a sign for it
# between two.
_SAME = re.compile(
    r"\bequivalent\b|\binterchangeabl|\bsynonym|\bthe same as\b|\bare (?:the same|equal)\b"
    r"|\bboth\b.*\b(?:accept\w*|valid|allowed|correct|fine|right|ok|okay)\b|\baccept\w*\b.*\bboth\b"
    r"|\"\"\s*(?:=+|equals?|is equal to)\s*\"\"",
    re.I,
)
# A conversion is not a spelling: with an unknown factor, or one in words, another unit is another number.
_CONVERTED = re.compile(r"\bconver|\d|\b(?:times|multipl\w*|divid\w*|thousand|hundred|million)\b", re.I)


@dataclass
class _Draft:
    """State of the compiler: what has been read so far."""

    columns: tuple[str, ...]
    types: dict[str, FieldType] = field(default_factory=dict)
    uppercase: set[str] = field(default_factory=set)
    aliases: dict[str, dict[str, str]] = field(default_factory=dict)
    units: dict[str, dict[str, Unit]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    key: tuple[str, ...] = ()
    weak_key: tuple[str, ...] = ()
    ordered: bool | None = None

    def fields(self) -> dict[str, FieldRule]:
        """Return the rules of the columns that have any."""
        return {
            name: FieldRule(
                self.types.get(name, "string"),
                name in self.uppercase,
                self.aliases.get(name, {}),
                self.units.get(name, {}),
            )
            for name in self.columns
            if name in self.types or name in self.uppercase or name in self.aliases or name in self.units
        }


def compile_rubric(task: Task) -> Rubric:
    """Return the side-car of a task, from `task.meta["rubric"]` and its reference.

    A side-car in `task.options["rubric"]` is taken as it is. Otherwise, columns that are never named are those
    of the reference's first line if the question repeats it, else `column 1` …, and a row key that is never named becomes the shortest run of leading columns that makes the
    reference's rows distinct. Both are then listed in `assumed`.
    """
    if "rubric" in task.options:
        return as_rubric(task.options["rubric"])
    rubric = task.meta.get("rubric")
    stated: Mapping[str, Any] = rubric if isinstance(rubric, Mapping) else {}
    rules = stated.get("normalization")
    settings: Mapping[str, Any] = rules if isinstance(rules, Mapping) else {}
    separator = _separator(settings.get("field_separator"), "|")
    records = _separator(settings.get("record_separator"), "\n")
    assumed: list[str] = []
    if separator == records:
        separator, records = "|", "\n"
        assumed.append("separators")
    rows = _reference_rows(task, separator, records)
    sources: dict[str, str] = {}
    columns = _columns(stated.get("columns")) or _columns(settings.get("schema"))
    if not columns and (columns := _told_header(rows, task.question, separator)):
        sources["columns"] = separator.join(columns)
    if not columns:
        columns = tuple(f"column {i + 1}" for i in range(max(map(len, rows), default=1)))
        assumed.append("columns")
    if rows and list(map(name_form, rows[0])) == list(map(name_form, columns)):
        del rows[0]
    draft = _Draft(columns, sources=sources)
    _read_stated(draft, stated)
    if "columns" in stated:
        others = {name: value for name, value in stated.items() if name not in (*_STATED, *_NO_RULES)}
        for topic, sentence in _sentences(others):
            _read(draft, topic, sentence)
    for topic, sentence in _sentences(rules):
        _read(draft, topic, sentence)
    header, header_source = _header(settings.get("header_row"))
    if header_source:
        draft.sources["header"] = header_source
    key = draft.key or draft.weak_key
    if not key:
        key = _telling_prefix(columns, rows)
        assumed.append("row_key")
    if draft.ordered is None:
        assumed.append("ordered")
    return Rubric(
        columns=columns,
        row_key=key,
        ordered=draft.ordered is not False,
        fields=draft.fields(),
        field_separator=separator,
        record_separator=records,
        header=header,
        sources=draft.sources,
        unread=tuple(draft.unread),
        assumed=tuple(assumed),
    )


def compile_rubrics(tasks: Iterable[Task]) -> dict[str, Rubric]:
    """Return one side-car per base task, from its English constraint form, else from its first form.

    Tasks with a side-car of their own are skipped.
    """
    chosen: dict[str, Task] = {}
    for task in tasks:
        if task.scorer != "table" or "rubric" in task.options:
            continue
        base = task.base or task.id
        if base not in chosen or _rank(task) < _rank(chosen[base]):
            chosen[base] = task
    return {base: compile_rubric(task) for base, task in chosen.items()}


def _rank(task: Task) -> tuple[bool, bool]:
    return (task.meta.get("language", "en") != "en", task.meta.get("variant", "constraint") != "constraint")


def _separator(value: Any, default: str) -> str:
    if not isinstance(value, str) or not value:
        return default
    named = {
        "\\n": "\n",
        "newline": "\n",
        "\\t": "\t",
        "tab": "\t",
        "pipe": "|",
        "comma": ",",
        "semicolon": ";",
    }
    bare = value.strip(" ")
    return named.get(bare.lower(), bare or default)


def _columns(schema: Any) -> tuple[str, ...]:
    if isinstance(schema, Mapping):
        schema = list(schema)
    if isinstance(schema, str):
        schema = re.split(r"[|,]", schema)
    if not isinstance(schema, Sequence):
        return ()
    names = [item.get("name", "") if isinstance(item, Mapping) else item for item in schema]
    if not all(isinstance(name, str) and name.strip() for name in names) or len(set(names)) != len(names):
        return ()
    return tuple(name.strip() for name in names)


def _reference_rows(task: Task, separator: str, records: str) -> list[tuple[str, ...]]:
    text = task.reference if isinstance(task.reference, str) else ""
    if text.strip() == "NONE":
        return []
    return [
        tuple(cell.strip() for cell in line.split(separator)) for line in text.split(records) if line.strip()
    ]


def _told_header(rows: list[tuple[str, ...]], question: str, separator: str) -> tuple[str, ...]:
    """Return the reference's first row if the question repeats it, as an output format does a header; else ()."""
    if len(rows) < 2 or any(not cell or cell[0].isdigit() for cell in rows[0]):
        return ()
    forms = [separator.join(rows[0]), f" {separator} ".join(rows[0])]
    return _columns(rows[0]) if any(form in question for form in forms) else ()


def _read_stated(draft: _Draft, stated: Mapping[str, Any]) -> None:
    """Take over the key, order and rules of columns that a rubric states; list in `unread` what is none."""
    key = _columns(stated.get("row_key"))
    if key and set(key) <= set(draft.columns):
        draft.key = key
        draft.sources["row_key"] = f"row_key: {', '.join(key)}"
    elif stated.get("row_key"):
        draft.unread.append(f"row_key: {stated['row_key']}")
    if isinstance(stated.get("ordered"), bool):
        draft.ordered = stated["ordered"]
        draft.sources["ordered"] = f"ordered: {str(draft.ordered).lower()}"
    elif stated.get("ordered") is not None:
        draft.unread.append(f"ordered: {json.dumps(stated['ordered'], ensure_ascii=False)}")
    if not isinstance(fields := stated.get("fields") or {}, Mapping | list):
        draft.unread.append(f"fields: {json.dumps(fields, ensure_ascii=False)}")
    for name, rule in (*_column_rules(stated.get("columns")), *_column_rules(fields)):
        if isinstance(rule, str):
            rule = {"type" if _field_type(rule) else "rule": rule}
        if name not in draft.columns or not isinstance(rule, Mapping):
            draft.unread.append(f"{name}: {json.dumps(rule, ensure_ascii=False)}")
            continue
        for member, value in rule.items():
            if isinstance(value, str) and member != "type":
                _read(draft, name, value)
            elif not _take_stated(draft, name, member, value):
                draft.unread.append(f"{name}: {member}: {json.dumps(value, ensure_ascii=False)}")


def _column_rules(stated: Any) -> Iterator[tuple[str, Any]]:
    """Yield (column, its rule) of a mapping, or of a list of objects with a name; of a list of names alone, nothing."""
    if isinstance(stated, Mapping):
        yield from stated.items()
    for item in stated if isinstance(stated, list) else ():
        if isinstance(item, Mapping):
            name = item.get("name")
            rule = {member: value for member, value in item.items() if member != "name"}
            yield (name.strip(), rule) if isinstance(name, str) else ("fields", item)


def _field_type(name: Any) -> FieldType | None:
    kind = _TYPE_NAMES.get(name, name) if isinstance(name, str) else None
    return next((one for one in FIELD_TYPES if one == kind), None)


_TYPE_NAMES = {
    "number": "decimal",
    "float": "decimal",
    "numeric": "decimal",
    "int": "integer",
    "text": "string",
}


def _take_stated(draft: _Draft, name: str, member: str, value: Any) -> bool:
    """Take over one member of a column's rule. Return False if it can't be."""
    done = True
    if member == "type":
        kind = _field_type(value)
        done = kind is not None
        if kind is not None:
            draft.types[name] = kind
    elif member == "uppercase":
        if value is True:
            draft.uppercase.add(name)
        done = isinstance(value, bool)
    elif member == "aliases" and isinstance(value, Mapping):
        texts = {variant: to for variant, to in value.items() if isinstance(to, str)}
        draft.aliases.setdefault(name, {}).update(texts)
        done = len(texts) == len(value)
    elif member == "units" and isinstance(value, Mapping):
        found = {unit: _stated_unit(how) for unit, how in value.items()}
        draft.units.setdefault(name, {}).update({unit: to for unit, to in found.items() if to is not None})
        done = None not in found.values()
    else:
        return False
    draft.sources[f"fields.{name}.{member}"] = f"fields.{name}.{member}"
    return done


def _stated_unit(how: Any) -> Unit | None:
    """Return a unit as a side-car has it: `{}` may be left out, a scale or offset converts. None for others.

    The authors take `(value - offset) * scale_num / scale_den` as the bare number.
    """
    if isinstance(how, str):
        return how
    numbers = ("offset", "scale_num", "scale_den")
    if not isinstance(how, Mapping) or not set(how) <= {*numbers, "to"}:
        return None
    if any(isinstance(how[one], bool) or not isinstance(how[one], int) for one in numbers if one in how):
        return None
    if not how:
        return ""
    scale, parts = how.get("scale_num", 1), how.get("scale_den", 1)
    if scale <= 0 or parts <= 0:
        return None
    unit = {"to": str(how.get("to", "")), "factor": str(Fraction(scale, parts))}
    return {**unit, "offset": str(how["offset"])} if how.get("offset") else unit


def may_decide_score(sentence: str) -> bool:
    """Return True if a sentence that no rule read may decide a score: it joins texts that differ."""
    bare = _QUOTED.sub("", sentence)
    return bool(_NO_MATTER.search(bare) or (_JOINS.search(bare) and not _NEGATED.search(bare)))


def _telling_prefix(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> tuple[str, ...]:
    for width in range(1, len(columns) + 1):
        if len({row[:width] for row in rows}) == len(rows):
            return columns[:width]
    return columns[:1]


def _header(value: Any) -> tuple[Literal["forbidden", "optional", "required"], str]:
    if isinstance(value, bool):
        return ("required" if value else "forbidden"), f"header_row: {str(value).lower()}"
    if not isinstance(value, str) or not value.strip():
        return "optional", ""
    if re.search(r"\boptional\b|\bmay\b|\ballowed\b|\bignored?\b|\bif present\b|可选", value, re.I):
        return "optional", value
    if re.search(r"\bno\b|\bnot\b|\bwithout\b|\bomit|\bforbidden\b|\bnone\b|不|无", value, re.I):
        return "forbidden", value
    return "required", value


def _sentences(rules: Any, topic: str = "") -> Iterator[tuple[str, str]]:
    """Yield (topic, sentence) pairs; the topic is the innermost name that isn't a list index."""
    if isinstance(rules, Mapping):
        for name, value in rules.items():
            if topic or name not in _SETTINGS:
                yield from _sentences(value, str(name))
    elif isinstance(rules, list):
        if rules and all(isinstance(item, str) and " " not in item.strip() for item in rules):
            yield topic, ", ".join(rules)  # a list of bare names is one statement
        else:
            for item in rules:
                yield from _sentences(item, topic)
    elif isinstance(rules, bool):
        yield topic, str(rules).lower()
    elif isinstance(rules, str):
        yield from ((topic, sentence) for sentence in _split(rules))


def _split(text: str) -> Iterator[str]:
    """Yield the sentences of a text; no sentence ends inside quotes or after an abbreviation."""
    quoted = [found.span() for found in _QUOTED.finditer(text)]
    start = 0
    for end in _SENTENCE_END.finditer(text):
        inside = any(a <= end.start() < b for a, b in quoted)
        if not inside and not _ABBREVIATED.search(text[: end.start()]):
            yield from filter(None, [text[start : end.start()].strip()])
            start = end.end()
    yield from filter(None, [text[start:].strip()])


def _mentioned(columns: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Return the columns named in a sentence, in its order; a longer name hides a shorter one inside it."""
    found: list[tuple[int, str]] = []
    masked = text
    for name in sorted(columns, key=len, reverse=True):
        words = [re.escape(word) for word in re.split(r"[\s_\-]+", name) if word]
        pattern = re.compile(r"(?<!\w)" + r"[\s_\-]+".join(words) + r"(?!\w)", re.I)
        match = pattern.search(masked)
        if match:
            found.append((match.start(), name))
            masked = pattern.sub(lambda m: "\0" * len(m[0]), masked)
    return tuple(name for _, name in sorted(found))


def _read(draft: _Draft, topic: str, sentence: str) -> None:
    by_name = {name_form(name): name for name in draft.columns}
    column = by_name.get(name_form(topic))
    mentioned = _mentioned(draft.columns, sentence)
    about = (column,) if column else mentioned
    done = False
    if not column:
        done |= _read_key(draft, topic, sentence, mentioned)
        done |= _read_order(draft, topic, sentence)
    negated = bool(_NEGATED.search(_QUOTED.sub("", sentence)))
    for name in about:
        if not negated:
            done |= _read_type(draft, name, sentence)
            done |= _read_variants(draft, name, topic, sentence)
    if not done:
        draft.unread.append(f"{topic}: {sentence}" if topic else sentence)


def _read_key(draft: _Draft, topic: str, sentence: str, mentioned: tuple[str, ...]) -> bool:
    if not mentioned:
        return False
    if _KEY_TOPIC.search(topic) or _KEY_SAYS.search(sentence):
        if not draft.key:
            draft.key = mentioned
            draft.sources["row_key"] = sentence
        return True
    if _DEDUP_TOPIC.search(topic) or _DEDUP_SAYS.search(sentence):
        if not draft.key and not draft.weak_key:
            draft.weak_key = mentioned
            draft.sources["row_key"] = sentence
        return True
    return False


def _read_order(draft: _Draft, topic: str, sentence: str) -> bool:
    if not (_ORDER_TOPIC.search(topic) or _ORDER_SAYS.search(sentence)) or _TIES.search(sentence):
        return False
    unordered = bool(_UNORDERED.search(sentence)) or sentence.strip().lower() == "false"
    if not unordered and _NEGATED.search(sentence):
        return False  # e.g. "do not sort": it does not say that the order counts
    if draft.ordered is None:
        draft.ordered = not unordered
        draft.sources["ordered"] = sentence
    return True


def _read_type(draft: _Draft, name: str, sentence: str) -> bool:
    done = False
    for kind, pattern in _TYPE_SAYS:
        if name not in draft.types and pattern.search(sentence):
            draft.types[name] = kind
            draft.sources[f"fields.{name}.type"] = sentence
            done = True
    if _UPPER.search(sentence):
        draft.uppercase.add(name)
        draft.sources[f"fields.{name}.uppercase"] = sentence
        done = True
    return done


def _read_variants(draft: _Draft, name: str, topic: str, sentence: str) -> bool:
    """Read the quoted spellings that a sentence joins: a value and its variants.

    Return True if there are any.
    """
    quoted = [text.strip() for text in _QUOTED.findall(sentence)]
    if len(quoted) < 2:
        return False
    bare = _QUOTED.sub('""', sentence)
    if _TURNS_INTO.search(sentence):
        value, variants = quoted[-1], quoted[:-1]
    elif _WRITTEN_AS.search(bare) or _SAME.search(bare):
        value, variants = quoted[0], quoted[1:]
    else:
        return False
    if re.search(r"\bunits?\b", f"{topic} {bare}", re.I):
        if _CONVERTED.search(bare):
            return False
        draft.units.setdefault(name, {}).update(dict.fromkeys([value, *variants], value))
        draft.sources[f"fields.{name}.units"] = sentence
    else:
        draft.aliases.setdefault(name, {}).update(dict.fromkeys(variants, value))
        draft.sources[f"fields.{name}.aliases"] = sentence
    return True

"""Declarative shadow trees (`<template shadowrootmode>`), moved to where a browser shows them.

`page.js` writes the open and closed shadow trees of a recorded page in this form.
"""

from __future__ import annotations

from typing import Any

Element = Any  # lxml.etree._Element; lxml has no types of its own


def open_shadows(tree: Element) -> bool:
    """Replace shadow trees by plain children of their hosts and fill their slots, in place.

    Return True if there was one. Children of a host that no slot takes stay after the tree, like other hidden markup.
    """
    found = [one for one in tree.iter("template") if one.get("shadowrootmode") in ("open", "closed")]
    for template in found:  # outer trees first
        host = template.getparent()
        template.tag = "div"
        template.attrib.clear()
        if host[0] is not template:  # after children that its slots may take: move it to the front
            _say_before(template, template.tail or "")
            template.tail = None
            host.insert(0, template)
        for slot in list(template.iter("slot")):
            # skip the slots of inner trees, which are still in their templates
            if not any(one in found for one in slot.iterancestors("template")):
                _fill(slot, host, template)
        template.tail, host.text = (host.text or "") + (template.tail or "") or None, None
    return bool(found)


def _fill(slot: Element, host: Element, shadow: Element) -> None:
    """Move the host's matching children into the slot; keep the slot's fallback content if none match."""
    name = slot.get("name") or ""
    slot.tag = "span"
    taken: list[Element | str] = []
    if not name:
        taken.append(host.text or "")
        host.text = None
    for child in list(host):
        mine = child is not shadow and (child.get("slot") or "") == name
        after = child.tail or ""
        if mine:
            taken.append(child)
        if not name:
            taken.append(after)
            child.tail = None
        elif mine:
            child.tail = None
            _say_before(child, after)
    if not any(not isinstance(one, str) or one.strip() for one in taken):
        return
    slot.text = None
    for child in list(slot):
        slot.remove(child)
    for one in taken:
        if not isinstance(one, str):
            slot.append(one)
        elif len(slot):
            slot[-1].tail = (slot[-1].tail or "") + one
        else:
            slot.text = (slot.text or "") + one


def _say_before(element: Element, text: str) -> None:
    """Insert text before an element."""
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + text
    else:
        parent = element.getparent()
        parent.text = (parent.text or "") + text

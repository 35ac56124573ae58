"""Shadow trees that markup declares (`<template shadowrootmode>`), put where they are seen.

So does `page.js` write the open and closed ones of a page that was recorded.
"""

from __future__ import annotations

from typing import Any

Element = Any  # lxml.etree._Element; lxml has no types of its own


def open_shadows(tree: Element) -> bool:
    """Makes shadow trees plain children of their hosts, what is slotted in its slot, in place. Whether there was one.

    What no slot takes stays behind the tree, as what markup hides is kept elsewhere.
    """
    found = [one for one in tree.iter("template") if one.get("shadowrootmode") in ("open", "closed")]
    for template in found:  # from the outermost on
        host = template.getparent()
        template.tag = "div"
        template.attrib.clear()
        if host[0] is not template:  # behind what it may take
            _say_before(template, template.tail or "")
            template.tail = None
            host.insert(0, template)
        for slot in list(template.iter("slot")):
            if not any(one in found for one in slot.iterancestors("template")):  # that is of a tree within
                _fill(slot, host, template)
        template.tail, host.text = (host.text or "") + (template.tail or "") or None, None
    return bool(found)


def _fill(slot: Element, host: Element, shadow: Element) -> None:
    """Moves what a slot takes of its host there; a slot that takes nothing shows what is in it."""
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
    """Adds text in front of an element."""
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + text
    else:
        parent = element.getparent()
        parent.text = (parent.text or "") + text

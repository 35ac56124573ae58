"""Run by .venv-peers: fills a new Trac environment with tickets of an invented project. `fill_trac.py ENVIRONMENT`."""

import sys
from datetime import UTC, datetime, timedelta

from trac.env import Environment
from trac.ticket.model import Milestone, Ticket
from trac.wiki.model import WikiPage

TYPES = ("defect", "enhancement", "task")
PRIORITIES = ("blocker", "critical", "major", "minor", "trivial")
COMPONENTS = ("component1", "component2")
OWNERS = ("ann", "bob", "cid")
THINGS = ("sluice", "mill wheel", "weir", "gauge", "lantern", "ferry", "ledger", "bridge")
FIRST = datetime(2024, 12, 2, 9, 0, tzinfo=UTC)


def main(path: str) -> None:
    """Forty-eight tickets an hour apart in one week, every third closed; two wiki pages; one milestone completed."""
    env = Environment(path)
    for number in range(48):
        ticket = Ticket(env)
        ticket.populate(
            {
                "summary": f"The {THINGS[number % 8]} {('leaks', 'creaks', 'is late')[number % 3]}",
                "description": f"Seen on round {number} near the {THINGS[(number + 3) % 8]}.",
                "type": TYPES[number % 3],
                "priority": PRIORITIES[number % 5],
                "component": COMPONENTS[number // 2 % 2],
                "milestone": f"milestone{number % 4 + 1}",
                "version": ("1.0", "2.0")[number // 3 % 2],
                "owner": OWNERS[number // 5 % 3],
                "reporter": OWNERS[number % 3],
                "status": "closed" if number % 3 == 2 else ("new", "assigned")[number % 2],
                "resolution": ("fixed", "wontfix")[number % 2] if number % 3 == 2 else "",
            }
        )
        ticket.insert(when=FIRST + timedelta(hours=3 * number))
    for name, text in (
        ("Mills", "= Mills =\nAll mills with a sluice.\n"),
        ("Ferries", "= Ferries =\nBoth.\n"),
    ):
        page = WikiPage(env, name)
        page.text = text
        page.save("ann", "first", t=FIRST + timedelta(days=1))
    done = Milestone(env, "milestone1")
    done.completed = FIRST + timedelta(days=5)
    done.update()
    due = Milestone(env, "milestone2")
    due.due = FIRST + timedelta(days=60)
    due.update()


if __name__ == "__main__":
    main(sys.argv[1])

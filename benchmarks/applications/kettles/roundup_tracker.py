"""A Roundup tracker of kettles: `roundup_tracker.py fill HOME PORT` makes it, `roundup_tracker.py serve HOME PORT` serves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from roundup import instance
from roundup.cgi.wsgi_handler import RequestDispatcher
from roundup.configuration import CoreConfig
from roundup.password import Password
from werkzeug.serving import run_simple

THINGS = ("Lid", "Spout", "Handle", "Base", "Cord")
FAULTS = ("rattles", "leaks", "is hot", "is loose")
PASSWORD = "tea-4711-pot"


def fill(home: Path, port: int) -> None:
    """Make a classic tracker with two users, two keywords and twenty issues."""
    admin = [str(Path(sys.executable).with_name("roundup-admin")), "-i", str(home)]
    subprocess.run([*admin, "install", "classic", "sqlite"], check=True, capture_output=True)
    config = CoreConfig(settings={"TRACKER_HOME": str(home), "RDBMS_BACKEND": "sqlite"})
    config["TRACKER_WEB"] = f"http://127.0.0.1:{port}/"
    config["MAIL_DOMAIN"], config["MAIL_HOST"], config["MAIL_DEBUG"] = "example.org", "localhost", "mail.log"
    config.save(str(home / "config.ini"))
    (home / "detectors" / "nosyreaction.py").unlink(missing_ok=True)
    subprocess.run([*admin, "initialise", PASSWORD], check=True, capture_output=True)
    db = instance.open(str(home)).open("admin")
    for name in ("ada", "bob"):
        db.user.create(
            username=name,
            password=Password(PASSWORD, config=db.config),
            address=f"{name}@example.org",
            roles="User",
        )
    for name in ("steel", "enamel"):
        db.keyword.create(name=name)
    for n in range(20):
        db.setCurrentUser("ada" if n % 2 else "bob")
        db.issue.create(
            title=f"{THINGS[n % 5]} {FAULTS[n % 4]}",
            priority=str(1 + n % 5),
            status=str(1 + n % 3),
            keyword=[str(1 + n % 2)],
        )
    db.commit()
    db.close()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        run_simple("127.0.0.1", int(sys.argv[3]), RequestDispatcher(sys.argv[2]), threaded=True)

"""A back office by Piccolo's admin: makers and kettles in SQLite. `piccolo_shop.py fill` makes the data, a port serves it."""

import asyncio
import os
import sys

import uvicorn
from piccolo.apps.user.tables import BaseUser
from piccolo.columns import ForeignKey, Integer, Varchar
from piccolo.engine.sqlite import SQLiteEngine
from piccolo.table import Table, create_db_tables
from piccolo_admin.endpoints import create_admin
from piccolo_api.session_auth.tables import SessionsBase

DB = SQLiteEngine(path=os.environ["DATABASE"])


class Maker(Table, db=DB):
    name = Varchar(length=50)


class Kettle(Table, db=DB):
    name = Varchar(length=50)
    price = Integer()
    maker = ForeignKey(references=Maker)


class Person(BaseUser, tablename="person", db=DB):
    pass


class Visit(SessionsBase, db=DB):
    pass


async def fill() -> None:
    await create_db_tables(Maker, Kettle, Person, Visit)
    await Person.create_user("ada", "tea-4711-pot", active=True, admin=True, superuser=True)
    await Maker.insert(*[Maker(name=name) for name in ("River", "Hill", "Wood")])
    await Kettle.insert(
        *[Kettle(name=f"Kettle {n}", price=20 + 7 * n % 60, maker=1 + n % 3) for n in range(40)]
    )


if sys.argv[1] == "fill":
    asyncio.run(fill())
else:
    admin = create_admin([Maker, Kettle], auth_table=Person, session_table=Visit, production=False)
    uvicorn.run(admin, host="127.0.0.1", port=int(sys.argv[1]))

"""The data of a shop of kettles for back offices: `sqlalchemy_shop.py sqladmin|starlette_admin PORT` fills and serves it.

DATABASE names the file.
"""

from __future__ import annotations

import os
import sys

import uvicorn
from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware

engine = create_engine("sqlite:///" + os.environ["DATABASE"], connect_args={"check_same_thread": False})


class Base(DeclarativeBase):
    """The base of the tables."""


class Maker(Base):
    """A maker of kettles."""

    __tablename__ = "maker"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    kettles: Mapped[list[Kettle]] = relationship(back_populates="maker")

    def __str__(self) -> str:
        return self.name


class Kettle(Base):
    """A kettle for sale."""

    __tablename__ = "kettle"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    price: Mapped[int]
    maker_id: Mapped[int] = mapped_column(ForeignKey("maker.id"))
    maker: Mapped[Maker] = relationship(back_populates="kettles")


def fill() -> None:
    """Make the tables, and fill them."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Maker(id=number, name=name) for number, name in enumerate(("Hill", "Lake"), 1))
        session.add_all(
            Kettle(id=number, name=f"Kettle {number}", price=20 + number, maker_id=1 + number % 2)
            for number in range(1, 25)
        )
        session.commit()


def sqladmin() -> Starlette:
    """Return SQLAdmin's back office."""
    from sqladmin import Admin, ModelView

    class KettleView(ModelView, model=Kettle):
        column_list = (Kettle.id, Kettle.name, Kettle.price)
        column_searchable_list = (Kettle.name,)
        column_sortable_list = (Kettle.price,)

    class MakerView(ModelView, model=Maker):
        column_list = (Maker.id, Maker.name)

    app = Starlette()
    admin = Admin(app, engine)
    admin.add_view(KettleView)
    admin.add_view(MakerView)
    return app


def starlette_admin() -> Starlette:
    """Return Starlette-Admin's back office."""
    from starlette_admin.contrib.sqla import Admin, ModelView

    app = Starlette(middleware=[Middleware(SessionMiddleware, secret_key="k" * 30)])
    admin = Admin(engine, title="Kettles")
    admin.add_view(ModelView(Kettle))
    admin.add_view(ModelView(Maker))
    admin.mount_to(app)
    return app


fill()
uvicorn.run({"sqladmin": sqladmin, "starlette_admin": starlette_admin}[sys.argv[1]](), host="127.0.0.1", port=int(sys.argv[2]))  # fmt: skip

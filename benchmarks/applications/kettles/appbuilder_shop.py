"""A shop of kettles with Flask-AppBuilder: `appbuilder_shop.py fill` makes its data, `appbuilder_shop.py PORT` serves it. DATABASE names the file."""

from __future__ import annotations

import os
import sys

from flask import Flask
from flask_appbuilder import AppBuilder, Model, ModelView
from flask_appbuilder.models.sqla.base import SQLA
from flask_appbuilder.models.sqla.interface import SQLAInterface
from sqlalchemy import Column, ForeignKey, Integer, String
from sqlalchemy.orm import relationship

app = Flask(__name__)
app.config.update(SECRET_KEY="k" * 30, SQLALCHEMY_DATABASE_URI="sqlite:///" + os.environ["DATABASE"])
db = SQLA(app)


class Maker(Model):
    """A maker of kettles."""

    __tablename__ = "maker"
    id = Column(Integer, primary_key=True)
    name = Column(String(40), unique=True, nullable=False)

    def __repr__(self):
        return self.name


class Kettle(Model):
    """A kettle for sale."""

    __tablename__ = "kettle"
    id = Column(Integer, primary_key=True)
    name = Column(String(40), nullable=False)
    kind = Column(String(10))
    price = Column(Integer)
    maker_id = Column(Integer, ForeignKey("maker.id"))
    maker = relationship(Maker, backref="kettles")

    def __repr__(self):
        return self.name


class KettleView(ModelView):
    """Kettles, ten a page."""

    datamodel = SQLAInterface(Kettle)
    list_columns = ("name", "kind", "price", "maker")
    base_order = ("id", "asc")
    page_size = 10


class MakerView(ModelView):
    """Makers with their kettles."""

    datamodel = SQLAInterface(Maker)
    list_columns = ("name",)
    related_views = (KettleView,)


with app.app_context():
    builder = AppBuilder(app, db.session)
    builder.add_view(KettleView, "Kettles", category="Shop")
    builder.add_view(MakerView, "Makers", category="Shop")


def fill():
    """Make a user, three makers and 45 kettles."""
    security = builder.sm
    security.add_user("ada", "Ada", "Pot", "ada@kettles.test", security.find_role("Admin"), "tea-4711-pot")
    for name in ("Brook", "Hill", "Stone"):
        db.session.add(Maker(name=name))
    db.session.flush()
    for n in range(45):
        kind = ("electric", "gas", "camping")[n % 3]
        db.session.add(Kettle(name=f"Kettle {n:02d}", kind=kind, price=10 + n, maker_id=1 + n % 3))
    db.session.commit()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        with app.app_context():
            fill()
    else:
        app.run("127.0.0.1", int(sys.argv[1]), threaded=True)

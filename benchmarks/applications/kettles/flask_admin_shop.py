"""A shop of kettles with Flask-Admin: `flask_admin_shop.py fill` makes its data, `flask_admin_shop.py PORT` serves it. DATABASE names the file."""

from __future__ import annotations

import datetime
import os
import sys

from flask import Flask, redirect, request, session
from flask_admin import Admin
from flask_admin.contrib.sqla import ModelView
from flask_sqlalchemy import SQLAlchemy

app = Flask(__name__)
app.config.update(SECRET_KEY="k" * 30, SQLALCHEMY_DATABASE_URI="sqlite:///" + os.environ["DATABASE"])
db = SQLAlchemy(app)


class Maker(db.Model):
    """A maker of kettles."""

    id = db.Column(db.Integer, primary_key=True)
    name = db.Column(db.String(40))

    def __str__(self):
        return self.name


class Kettle(db.Model):
    """A kettle for sale."""

    id = db.Column(db.Integer, primary_key=True)
    name = db.Column(db.String(40))
    kind = db.Column(db.String(10))
    price = db.Column(db.Integer)
    made = db.Column(db.Date)
    maker_id = db.Column(db.Integer, db.ForeignKey("maker.id"))
    maker = db.relationship(Maker, backref="kettles")

    def __str__(self):
        return self.name


class SignedIn(ModelView):
    """A view for users who have signed in."""

    def is_accessible(self):
        return "user" in session

    def inaccessible_callback(self, name, **more):
        return redirect("/login?next=" + request.url)


class KettleView(SignedIn):
    """Kettles with search, filters, editing in the list, and forms in dialogs."""

    column_searchable_list = ("name",)
    column_filters = ("kind", "price", "maker.name")
    column_editable_list = ("price",)
    page_size = 10
    can_export = True
    column_default_sort = "id"
    create_modal = True
    edit_modal = True


admin = Admin(app, name="Kettles")
admin.add_view(KettleView(Kettle, db))
admin.add_view(SignedIn(Maker, db))


@app.route("/login", methods=["GET", "POST"])
def login():
    """Sign in."""
    if request.method == "GET":
        return "<form method=post><input name=u><input name=p type=password><button>go</button></form>"
    if request.form["p"] != "tea-4711-pot":
        return "wrong password <a href=/login>again</a>", 401
    session["user"] = request.form["u"]
    return redirect("/admin/kettle/")


@app.route("/logout")
def logout():
    """Sign out."""
    session.clear()
    return redirect("/login")


def fill():
    """Make three makers and 45 kettles."""
    db.create_all()
    for name in ("Brook", "Hill", "Stone"):
        db.session.add(Maker(name=name))
    db.session.flush()
    for n in range(45):
        kind = ("electric", "gas", "camping")[n % 3]
        made = datetime.date(2024, 1 + n % 12, 1 + n % 28)
        name = f"Kettle {n:02d} {('red', 'blue')[n % 2]}"
        db.session.add(Kettle(name=name, kind=kind, price=10 + n, made=made, maker_id=1 + n % 3))
    db.session.commit()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        with app.app_context():
            fill()
    else:
        app.run("127.0.0.1", int(sys.argv[1]), threaded=True)

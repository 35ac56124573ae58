"""A shop of kettles with Django's admin: `manage.py fill` makes its data, `manage.py runserver` serves it. DATABASE names the file."""

from __future__ import annotations

import datetime
import os
import sys

from django.conf import settings

settings.configure(
    DEBUG=True,
    SECRET_KEY="k" * 40,
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="manage",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")),
        "shop",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}},
    STATIC_URL="/static/",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    MIGRATION_MODULES={"shop": None},
)  # fmt: skip


def fill() -> None:
    """Make two users, four makers and sixty kettles."""
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from shop.models import Kettle, Maker

    call_command("migrate", run_syncdb=True, verbosity=0)
    User.objects.create_superuser("ada", "ada@example.org", "tea-4711-pot")
    User.objects.create_superuser("bob", "bob@example.org", "tea-4712-pot")
    makers = [Maker.objects.create(name=name) for name in ("Brook", "Hill", "Meadow", "Stone")]
    for n in range(60):
        Kettle.objects.create(
            name=f"Kettle {n:02d} {('red', 'blue', 'green')[n % 3]}",
            maker=makers[n % 4],
            kind="egc"[n // 2 % 3],
            price=10 + n * 1.5,
            made=datetime.date(2022 + n % 3, 1 + n % 12, 1 + n % 28),
            sold=n % 5 == 0,
        )


if __name__ == "__main__":
    sys.modules["manage"] = sys.modules["__main__"]
    import django

    django.setup()
    from django.contrib import admin
    from django.core.management import execute_from_command_line
    from django.urls import path

    urlpatterns = [path("admin/", admin.site.urls)]
    if sys.argv[1] == "fill":
        fill()
    else:
        execute_from_command_line(sys.argv)

"""A help desk with django-helpdesk: `helpdesk_desk.py fill` makes its data, `helpdesk_desk.py runserver …` serves it. DATABASE names the file."""

from __future__ import annotations

import os
import sys

import django
from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.urls import include, path

settings.configure(
    SECRET_KEY="k" * 50,
    DEBUG=True,
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SITE_ID=1,
    STATIC_URL="/static/",
    LOGIN_URL="/login/",
    LOGIN_REDIRECT_URL="/tickets/",
    LOGOUT_REDIRECT_URL="/",
    EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend",
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    HELPDESK_ACTIVATE_API_ENDPOINT=True,
    HELPDESK_TEAMS_MODE_ENABLED=False,
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}},
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in ("auth", "contenttypes", "sessions", "sites", "messages", "staticfiles", "humanize", "admin")),
        "rest_framework",
        "helpdesk",
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
)  # fmt: skip
django.setup()
urlpatterns = [path("", include("helpdesk.urls", namespace="helpdesk")), path("admin/", admin.site.urls)]


def fill():
    """Make a user, two queues and twelve tickets."""
    from django.contrib.auth.models import User
    from helpdesk.models import KBCategory, KBItem, Queue, Ticket

    call_command("migrate", verbosity=0)
    User.objects.create_superuser("ada", "ada@kettles.test", "tea-4711-pot")
    queues = [
        Queue.objects.create(title=name, slug=name.lower(), allow_public_submission=True)
        for name in ("Repairs", "Sales")
    ]
    for n in range(12):
        Ticket.objects.create(title=f"Kettle {n:02d} leaks", queue=queues[n % 2], submitter_email="bob@kettles.test", description="It drips.", priority=1 + n % 5)  # fmt: skip
    shelf = KBCategory.objects.create(name="care", title="Care", slug="care", description="How to care.")
    for title in ("Descaling", "Storing"):
        KBItem.objects.create(category=shelf, title=title, question=f"{title}?", answer="With vinegar.")


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill()
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)

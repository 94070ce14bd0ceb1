"""Two of Debusine's models, reduced like the tables, for a Django of its own.

Importing it sets Django up for this process; `connect` says which database it speaks to.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connections, models

settings.configure(DATABASES={}, INSTALLED_APPS=["django.contrib.postgres"], USE_TZ=True)
django.setup()

_TAGS = {"base_field": models.CharField(max_length=255)}


class Worker(models.Model):  # type: ignore[misc] # Django ships no types
    """A worker, as far as it decides what it runs."""

    name = models.CharField(max_length=50)
    worker_type = models.CharField()
    static_metadata = models.JSONField()
    dynamic_metadata = models.JSONField()

    class Meta:
        app_label = "db"
        managed = False

    def __str__(self) -> str:
        return str(self.name)


class WorkRequest(models.Model):  # type: ignore[misc] # Django ships no types
    """A work request, as far as it decides where it runs."""

    status = models.CharField()
    worker = models.ForeignKey(Worker, models.DO_NOTHING, null=True)
    task_name = models.CharField(max_length=100)
    scheduler_tags_required = ArrayField(**_TAGS)
    scheduler_tags_provided = ArrayField(**_TAGS)

    class Meta:
        app_label = "db"
        managed = False

    def __str__(self) -> str:
        return f"{self.task_name} {self.pk}"


def connect(url: str) -> Any:  # noqa: ANN401 - Django ships no types
    """Let the models speak to this PostgreSQL and return the connection."""
    parts = urlsplit(url)
    for connection in connections.all(initialized_only=True):
        connection.close()
        del connections[connection.alias]
    connections.settings.update(
        connections.configure_settings(
            {
                "default": {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": parts.path.removeprefix("/"),
                    "USER": parts.username,
                    "HOST": parse_qs(parts.query)["host"][0],
                }
            }
        )
    )
    return connections["default"]

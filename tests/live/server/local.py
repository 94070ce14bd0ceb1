"""Settings of Debusine for tests; where its database and Redis are stands in the environment."""

import os

# Read only inside Debusine, beside its own settings.
from .defaults import CHANNEL_LAYERS  # type: ignore[import-untyped]
from .selected import *  # type: ignore[import-untyped]  # noqa: F403 - the way to extend them

_REDIS = os.environ["LIVE_REDIS"]

DEBUSINE_FQDN = "localhost"
DEBUSINE_URL_SCHEME = "http"
ALLOWED_HOSTS = ["*"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "ATOMIC_REQUESTS": True,
        "NAME": "debusine",
        "USER": "debusine-server",
        "HOST": os.environ["LIVE_SQL_HOST"],
        "PORT": os.environ["LIVE_SQL_PORT"],
        "PASSWORD": os.environ.get("LIVE_SQL_PASSWORD", ""),
    }
}
CHANNEL_LAYERS["default"]["CONFIG"] = {"hosts": [_REDIS]}
CELERY_BROKER_URL = f"{_REDIS}/0"
PROMETHEUS_REDIS_URL = f"{_REDIS}/1"
LIVE_LOG_REDIS_URL = f"{_REDIS}/2"

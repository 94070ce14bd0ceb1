"""Where Debusine's web server listens for tests."""

import os

bind = os.environ["LIVE_BIND"]
workers = 2

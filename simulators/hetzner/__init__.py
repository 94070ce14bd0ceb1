"""Hetzner Cloud's API on the loopback: `server` listens, `api` answers, `project` holds it."""

"""This module sweeps machines that existed only while an image was built or published.

No pool has them and no worker runs there: one that is older than any build or upload takes was
left by a run that died.
"""

import os
import time
from datetime import datetime
from pathlib import Path

from fleet.errors import FleetError
from fleet.operate.publish import LEFT_AFTER
from fleet.ports import Console
from fleet.schema.model import Fleet, HcloudProvider
from fleet.store.secrets import HostSecrets

_TRIES = 2


def sweep_temporary(
    fleet: Fleet, base: Path, now: datetime, console: Console, *, apply: bool
) -> bool:
    """Name them, and delete them where that is asked; False where not all could be told."""
    from fleet.images.hetzner import Hetzner
    from fleet.images.temporary import clean_temporary, stale_temporary

    secrets, is_whole = HostSecrets(os.environ, base), True
    for name, provider in fleet.providers.items():
        if not isinstance(provider, HcloudProvider):
            continue
        try:
            api = Hetzner(secrets.read(provider.token), pause=time.sleep, tries=_TRIES)
            find = clean_temporary if apply else stale_temporary
            for each in find(api, fleet.fleet, now - LEFT_AFTER):
                done = "deleted" if apply else "would be deleted"
                console.note(f"{name}: {each}, left by a build or an upload that died: {done}")
        except FleetError as error:
            console.note(f"{name}: temporary machines are not known: {error}")
            is_whole = False
    return is_whole

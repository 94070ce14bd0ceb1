"""The user data of a machine's first boot, for cloud-init.

The worker's service starts only after its token and configuration are written. An earlier start
would register a worker that is not enabled.
"""

from dataclasses import asdict, dataclass, field

import yaml

WORKER = "/etc/debusine/worker"
SERVICE = "debusine-worker.service"
OWNER = "debusine-worker:debusine-worker"
_HEADER = "#cloud-config\n"
_SWAP = "/swap.img"
_MIB = 1024 * 1024
# The mask ends at the next boot at the latest, and only a first boot sets the mask.
_HOLD = [["cloud-init-per", "instance", "hold-worker", "systemctl", "mask", "--runtime", SERVICE]]
_RELEASE = [["systemctl", "unmask", "--runtime", SERVICE], ["systemctl", "restart", SERVICE]]


@dataclass(frozen=True)
class UserDataFile:
    """A file to write on a machine. `repr` omits `content`, because it may be a secret."""

    path: str
    permissions: str
    owner: str
    content: str = field(repr=False)


@dataclass(frozen=True)
class UserData:
    """The steps of a first boot: write files, create swap, wait `delay` seconds, start worker."""

    files: tuple[UserDataFile, ...]
    delay: int
    swap: int = 0
    """Size of the swap file on the machine's disk in MiB; 0 for no swap."""


def write_user_data(url: str, token: str, *, delay: int = 0, swap: int = 0) -> str:
    """Return the `#cloud-config` of a machine whose worker registers at a Debusine server.

    `url` is the base URL of the server, as in `queues.*.url`. The worker starts after `delay`
    seconds; the machine has `swap` MiB of swap.
    """
    config = f"[General]\napi-url = {url.rstrip('/')}/api\n"
    files = (
        UserDataFile(f"{WORKER}/config.ini", "0644", OWNER, config),
        UserDataFile(f"{WORKER}/activation-token", "0600", OWNER, token),
    )
    return _HEADER + yaml.safe_dump(_document(UserData(files, delay, swap)), sort_keys=False)


def write_swap(swap: int) -> str:
    """Return the `#cloud-config` of a machine without a worker, with `swap` MiB of swap."""
    return _HEADER + yaml.safe_dump(_swap_document(swap), sort_keys=False)


def read_user_data(text: str) -> UserData:
    """Parse text that `write_user_data` returned; raises ValueError for any other text."""
    data = _as_written(text) if text.startswith(_HEADER) else None
    if data is None:
        # The message omits the text and the YAML error, because both may contain the token.
        raise ValueError("fleet did not make this user data")
    return data


def _as_written(text: str) -> UserData | None:
    try:
        document = yaml.safe_load(text)
        files = tuple(UserDataFile(**each) for each in document["write_files"])
        delay = sum(int(seconds) for _, seconds in document["runcmd"][: -len(_RELEASE)])
        swap = int(document.get("swap", {}).get("size", 0)) // _MIB
        data = UserData(files, delay, swap)
        return data if _document(data) == document else None
    except (yaml.YAMLError, AttributeError, TypeError, KeyError, ValueError, RecursionError):
        return None


def _document(data: UserData) -> dict[str, object]:
    wait = [["sleep", str(data.delay)]] if data.delay else []
    return {
        "bootcmd": _HOLD,
        **(_swap_document(data.swap) if data.swap else {}),
        "write_files": [asdict(each) for each in data.files],
        "runcmd": [*wait, *_RELEASE],
    }


def _swap_document(swap: int) -> dict[str, object]:
    size = swap * _MIB
    return {"swap": {"filename": _SWAP, "size": size, "maxsize": size}}

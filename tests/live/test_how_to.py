"""The page about connecting a server shows what a real one and the program say."""

import re
from pathlib import Path

from tests.docs.test_documents import Shell, changed, replayed, steady
from tests.live.debusine import Server
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT, fleet_command

PAGE = ROOT / "docs" / "how-to" / "connect-debusine.md"
# `sudo -u USER COMMAND` on the page is a command in the server's chroot.
SUDO = r"""#!/bin/sh
user=$2
shift 2
for last; do :; done
# What a person types at psql's prompts, which then stand in lines of their own.
word=
case $last in
*password\ fleet_ro) word=correct-horse ;;
*password\ fleet_rw) word=battery-staple ;;
esac
case $user in
{cases}
esac
[ -n "$word" ] || exec "$@"
printf '%s\n%s\n' "$word" "$word" | "$@" 2>&1 | sed 's/ *$//'
"""


def test_page_shows_current_output(server: Server, tmp_path: Path, golden: Golden) -> None:
    shell = Shell(tmp_path, fleet_command())
    _allow_sudo(shell, server)
    real = {
        "https://debusine.example.org": server.url,
        "debusine.example.org:5432": f"127.0.0.1:{server.sql_port}",
    }
    text = PAGE.read_text(encoding="utf-8")

    now = replayed(changed(text, real), shell)

    now = changed(now, {here: there for there, here in real.items()})
    golden.compare(PAGE, now, _settled)


def _settled(text: str) -> str:
    """Return what is the same in each run: not for how many seconds something waits."""
    return steady(re.sub(r"\b\d+s\b", "N s", text))


def _allow_sudo(shell: Shell, server: Server) -> None:
    users = ("debusine-server", "postgres")
    cases = (f'{user}) set -- {" ".join(server.inside.command(user))} "$@" ;;' for user in users)
    sudo = shell.folder / "bin" / "sudo"
    sudo.write_text(SUDO.format(cases="\n".join(cases)), encoding="utf-8")
    sudo.chmod(0o755)

"""Run the main commands on the example fleet, and print each command first.

The example uses embedded defaults: a recorded queue, simulated machines, state in .fleet/.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLEET = ROOT / ".venv" / "bin" / "fleet"

APPLIED = "Applied:"
"""First line of the report of `fleet apply`, after the plan."""
NEXT = """
That was the main job: fleet.yaml and a recorded queue became a plan, machines and a status.
Nothing outside this folder was touched; the simulated machines live in .fleet/. What to try next:

  .venv/bin/fleet plan                     nothing to do: the fleet is what fleet.yaml says
  edit fleet.yaml (a pool's max, say)      then: .venv/bin/fleet validate
  .venv/bin/fleet plan                     what your edit would change, what it costs, and why
  .venv/bin/fleet apply                    create, drain and delete what the plan says
  .venv/bin/fleet status --site site       status pages: open site/index.html
  rm -r .fleet                             forget the demo and start again
"""


def main() -> int:
    """Run all commands; return the exit code of the first failed command, or 0."""
    steps: tuple[tuple[str, list[str], str], ...] = (
        ("Is fleet.yaml right? All findings at once, each with its place.", ["validate"], ""),
        ("Create the store of what must outlive a run (once per fleet).", ["state", "init"], ""),
        ("Which machines should exist, at what cost, and why?", ["plan"], ""),
        ("Create them. (It prints the plan again, which is left out here.)", ["apply"], APPLIED),
        ("What is there now?", ["status"], ""),
    )
    for why, arguments, begin in steps:
        code = show(why, arguments, begin)
        if code:
            return stopped(arguments, code)
    request = find_request()
    if request is not None:
        arguments = ["explain", "request", request]
        code = show(f"Why has build {request} not started?", arguments)
        if code:
            return stopped(arguments, code)
    print(NEXT, flush=True)
    return 0


def show(why: str, arguments: list[str], begin: str = "") -> int:
    """Print the purpose and the command, then run it; print its output from `begin` on."""
    cut = f" | sed -n '/^{begin}/,$p'" if begin else ""
    print(f"\n# {why}\n$ fleet {shlex.join(arguments)}{cut}", flush=True)
    command = [str(FLEET), *arguments]
    if not begin:
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    ran = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    # Where it failed before that line, everything that it said is wanted.
    print(ran.stdout[max(0, ran.stdout.find(begin)) :], end="", flush=True)
    return ran.returncode


def find_request() -> str | None:
    """Return the id of a waiting request, preferably without a machine; None without requests."""
    planned = subprocess.run(
        [FLEET, "plan", "--json"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if planned.returncode:
        return None
    plan = json.loads(planned.stdout)
    waiting = [request for part in plan["unserved"] for request in part["requests"]]
    waiting += [request for part in plan["signatures"] for request in part["requests"]]
    return waiting[0] if waiting else None


def stopped(arguments: list[str], code: int) -> int:
    """Print the failed command and return its exit code."""
    print(f"\ndemo: `fleet {shlex.join(arguments)}` ended with {code}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

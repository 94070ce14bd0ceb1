"""`pulumi up --yes`, its own preview included, for one stack of simulated machines.

Run: python -m bench.pulumi_up CLI FOLDER STACK. No Python language host can be had everywhere, so
this process is it: the CLI's `--client` option, and the program of stacks/sim with the workers of
the stack's own settings, as stacks/sim/__main__.py has it.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc  # type: ignore[import-untyped] # it ships no types
import yaml
from pulumi.automation._server import LanguageServer
from pulumi.runtime.proto import language_pb2_grpc

from fleet.engines.projects import load_project


def main(cli: str, folder: Path, stack: str) -> int:
    """Run the operation and return the CLI's exit code."""
    work = folder / "pulumi/work/fleet-sim"
    settings = yaml.safe_load((work / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
    inputs = {
        key: json.loads(settings["config"][f"fleet-sim:{key}"]) for key in ("workers", "owner")
    }
    program = load_project("sim").program
    server = grpc.server(ThreadPoolExecutor(4))
    servicer = LanguageServer(lambda: program(inputs))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = f"--client=127.0.0.1:{port}"
    command = [cli, "up", "--yes", "--non-interactive", "--stack", stack, client]
    done = subprocess.run(command, cwd=work, env=environment(folder), check=False)
    server.stop(0)
    return done.returncode


def environment(folder: Path) -> dict[str, str]:
    """Return what the CLI needs to find what fleet keeps in this folder."""
    return {
        **os.environ,
        "PULUMI_HOME": str(folder / "pulumi/cli"),
        "PULUMI_BACKEND_URL": f"file://{folder}",
        "PULUMI_CONFIG_PASSPHRASE": os.environ["BENCH_PASSPHRASE"],
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_AUTOMATION_API": "true",
        "PATH": os.pathsep.join((str(folder / "pulumi/plugins"), os.environ["PATH"])),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))

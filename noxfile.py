"""What can be checked: `make test` runs lint, types and tests.

Sessions use the tools of .venv (see tools/setup.sh). One that cannot run on this machine says
`SKIPPED name: reason` on a line of its own and succeeds; one that runs without a part of it says
`WITHOUT name: what`. .ci/run collects these lines.
"""

import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import nox

ROOT = Path(__file__).parent
OWN = ROOT / ".venv" / "bin"
BIN = OWN if OWN.is_dir() else Path(sys.executable).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleet"
CHROMIUM = ("chromium", "chromium-browser")
NO_TESTS_COLLECTED = 5
_ROOM = 4_000_000_000
"""Bytes of memory that a whole run writes at most, with what failing tests leave."""
ABSENT = 3
RUN = (
    *("--group", "build", "--extra", "hcloud", "--extra", "s3"),
    *("--extra", "postgres", "--extra", "policies"),
)
WHERE = {
    "live": ("tests/live",),
    "images": ("tests/ansible", "tests/images", "tests/walks"),
    "images-boot": ("tests/live",),
    "gitlab": ("tests/gitlab",),
    "pages": ("tests/docs", "tests/pages"),
    "live-aws": ("tests/live_cloud",),
    "live-hcloud": ("tests/live_cloud",),
    "kills": ("tests/faults",),
    "fuzz": ("tests/faults",),
    "crowd": ("tests/cli", "tests/tickets"),
    "container": ("tests/packaging",),
}
"""Where the tests of a session are, if not everywhere: to collect all takes 15 seconds."""
COVERAGE = ("--cov-report=term:skip-covered", "--cov-fail-under=90")

# The tools of .venv come before all others, for the programs that these start too.
os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
# Without it each process compiles anew what it loads, and pytest rewrites every test anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, imports, sizes, names, English, YAML, spelling, the role, the pipeline."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-logo")
    session.run("python", "tools/halves.py")
    session.run("python", "tools/names.py")
    session.run("python", "tools/prose.py")
    session.run("yamllint", "--strict", ".")
    session.run("codespell")
    session.run(
        *("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform"),
        *("gitlab-ci", ".gitlab-ci.yml"),
    )
    compose = "tests/live/server/compose.yaml"
    session.run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", compose)
    folders = ("ansible", "contrib/copr")
    session.run("ansible-lint", "--offline", "--strict", *folders, env=ansible_environment())


@nox.session
def types(session: nox.Session) -> None:
    """Strict types on code, stacks, tests, bench and tools."""
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that needs no server, no Go, no browser, and is not slow."""
    session.run("pytest", *session.posargs, env=in_memory())


@nox.session
def slow(session: nox.Session) -> None:
    """Run whole stories and repeats."""
    # One process would go on alone when all other sessions have ended.
    run_marked(session, "-n", "2", "--dist", "worksteal", **in_memory())


@nox.session(name="slow-laws")
def slow_laws(session: nox.Session) -> None:
    """Run the laws with more examples than every day."""
    # Hypothesis draws constants of the modules that are imported: a fixed order repeats a run.
    command = ("pytest", "-n", "0", "-p", "no:randomly", "tests/laws", *session.posargs)
    session.run(*command, env={"HYPOTHESIS_PROFILE": "slow"})


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the same tests and the slow ones with branch coverage."""
    # What is forked in another folder would write its part there: into the project of a test.
    environment = {**in_memory(), "COVERAGE_FILE": str(ROOT / ".coverage")}
    session.run("pytest", "tests", "--cov", *COVERAGE, *session.posargs, env=environment)


@nox.session
def laws(session: nox.Session) -> None:
    """Run the laws for long, with fresh random examples (scheduled)."""
    session.run("pytest", "tests/laws", *session.posargs, env={"HYPOTHESIS_PROFILE": "laws"})


@nox.session
def surroundings(session: nox.Session) -> None:
    """Run what starts the program as a user without a name or a home, in a path of odd letters."""
    nobody = ("unshare", "--user", "--map-user=1234", "--map-group=1234")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*nobody, "true"], check=False).returncode
    ):
        skip(session, "unshare --map-user does not work on this machine")
        return
    with tempfile.TemporaryDirectory() as folder:
        homeless = ("env", "-u", "HOME", f"XDG_CACHE_HOME={CACHE.parent}", *nobody)
        session.run(
            *(*homeless, str(BIN / "pytest"), "-p", "no:cacheprovider"),
            *("--basetemp", f"{folder}/a b%20c?d=é,f", "tests/cli", "tests/walks", "tests/faults"),
            *("--ignore", "tests/faults/test_surroundings.py"),
            # Its page writes $PWD into a URL as it stands.
            *("--ignore", "tests/walks/test_an_image.py", *session.posargs),
            external=True,
        )


@nox.session
def mutants(session: nox.Session) -> None:
    """Change the code of decisions and name what no test notices; `-- guard` one target."""
    session.run("python", "tools/mutants.py", *session.posargs)


@nox.session
def engine(session: nox.Session) -> None:
    """Run what needs the real Pulumi CLI, Hetzner's plugin or an S3 server, or takes long."""
    cli = obtain(session, "tools/pulumi_cli.py")
    if cli is None:
        skip(session, "no Pulumi CLI: none on PATH, no download, no Go modules (see above)")
        return
    plugins = obtain(session, "tools/pulumi_plugins.py")
    if plugins is None:
        print(f"WITHOUT {session.name}: the plugin of Hetzner Cloud (see above)", flush=True)
    buckets = obtain(session, "tools/s3_server.py")
    if buckets is None:
        print(f"WITHOUT {session.name}: a real S3 server (see above)", flush=True)
    found = {"FLEET_PULUMI_PLUGINS": plugins or "", "FLEET_S3_SERVER": buckets or ""}
    # The CLI and its plugins end before their garbage fills the memory.
    found["GOGC"] = "400"
    # A test that waits for a full disk holds up no whole file.
    run_marked(session, "-n", "2", "--dist", "worksteal", FLEET_PULUMI=cli, **found)


@nox.session
def kills(session: nox.Session) -> None:
    """Kill an apply at every moment that it has, with the real engine (half an hour)."""
    cli, plugins = (obtain(session, f"tools/pulumi_{what}.py") for what in ("cli", "plugins"))
    if cli is None or plugins is None:
        skip(session, "no Pulumi CLI, or no plugin of Hetzner Cloud (see above)")
        return
    run_marked(session, FLEET_PULUMI=cli, FLEET_PULUMI_PLUGINS=plugins)


@nox.session
def long(session: nox.Session) -> None:
    """Run what engine, live, images, slow and gitlab leave out for its length (scheduled)."""
    for name in ("engine", "live", "images", "images-boot", "slow", "gitlab"):
        session.notify(name, ["-m", f"{name.replace('-', '_')} and long"])


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read bad input, 10,000 of each kind (scheduled); FLEET_FUZZ_SEED and FLEET_FUZZ_COUNT."""
    seed = os.environ.get("FLEET_FUZZ_SEED") or str(secrets.randbelow(10**6))
    print(f"FLEET_FUZZ_SEED={seed}", flush=True)
    run_marked(session, "-n", "2", FLEET_FUZZ_SEED=seed)


@nox.session
def crowd(session: nox.Session) -> None:
    """Have a thousand clients ask one service that is killed under them (scheduled)."""
    run_marked(session)


@nox.session
def live(session: nox.Session) -> None:
    """Run against a real Debusine server, made from Debian's packages the first time."""
    is_there, told = ask(session, "-m", "tests.live.chroot")
    if is_there:
        # They mostly wait. Each process has a server; the first file needs a fresh one.
        apart = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
        run_marked(session, *apart, FLEET_LIVE=told)
    else:
        skip(session, told)


@nox.session(name="live-aws")
def live_aws(session: nox.Session) -> None:
    """Make and end one machine at AWS, with the credentials of AWS's own chain (costs cents)."""
    live_cloud(session, "no credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID, and AWS_REGION")


@nox.session(name="live-hcloud")
def live_hcloud(session: nox.Session) -> None:
    """Make and end one machine at Hetzner Cloud, with HCLOUD_TOKEN (costs cents)."""
    live_cloud(session, "no credentials: set HCLOUD_TOKEN")


@nox.session
def images(session: nox.Session) -> None:
    """Bake an image for real, from the archive that this machine's apt installs from."""
    run_where_possible(session, "tests.images.mirrors")


@nox.session(name="every-suite")
def every_suite(session: nox.Session) -> None:
    """Run the role in roots of all suites, with every executor and task (scheduled)."""
    run_where_possible(
        session, "tests.images.mirrors", "tests/ansible", "--every-suite", marker="images"
    )


@nox.session
def debian(session: nox.Session) -> None:
    """Build, lint and test the Debian package in a root of trixie (scheduled)."""
    run_marked(session, "tests/packaging/test_debian.py")


@nox.session(name="images-boot")
def images_boot(session: nox.Session) -> None:
    """Bake an image, boot it, and have its worker do a piece of a real server's work."""
    run_where_possible(session, "tests.rigs.baking")


@nox.session
def container(session: nox.Session) -> None:
    """Build the container image and run it (the first time a quarter of an hour)."""
    run_where_possible(session, "tests.rigs.container")


@nox.session
def gitlab(session: nox.Session) -> None:
    """Run the jobs of .gitlab-ci.yml on this machine with gitlab-ci-local."""
    npm = shutil.which("npm")
    missing = [name for name in ("node", "npm", "rsync", "curl") if shutil.which(name) is None]
    if npm is None or missing:
        skip(session, f"gitlab-ci-local needs {', '.join(missing)}")
        return
    installed = install_npm(npm, "gitlab", ".bin/gitlab-ci-local")
    if installed is None:
        skip(session, "gitlab-ci-local could not be installed from npm")
        return
    run_marked(session, FLEET_GITLAB_CI_LOCAL=str(installed))


@nox.session
def pages(session: nox.Session) -> None:
    """Open the status pages in headless Chromium."""
    if not any(map(shutil.which, CHROMIUM)):
        skip(session, f"no browser on PATH (looked for {', '.join(CHROMIUM)})")
        return
    npm = shutil.which("npm")
    axe = install_npm(npm, "pages", "axe-core/axe.min.js") if npm else None
    if axe is None:
        why = "could not be installed from npm" if npm else "needs npm"
        print(f"WITHOUT {session.name}: axe-core {why}", flush=True)
    run_marked(session, FLEET_AXE=str(axe or ""))


@nox.session
def metrics(session: nox.Session) -> None:
    """Check alerts and the dashboard with promtool, and have a Prometheus scrape fleet."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        skip(session, f"no {' and no '.join(missing)} on PATH (Debian: prometheus)")
        return
    run_marked(session, "tests/contrib")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure and print what `python -m bench` knows; `nox -s bench -- NAME` one of them."""
    for name in session.posargs or ["startup", "tags", "reconcile"]:
        session.run("python", "-m", "bench", name)


@nox.session
def docs(session: nox.Session) -> None:
    """Check links, examples and what must be documented."""
    session.run(
        "pytest", "tests/docs", "tests/architecture/test_documentation.py", *session.posargs
    )


@nox.session
def site(session: nox.Session) -> None:
    """Build the site of docs/ into .site, with every link of it checked."""
    session.run("make", "site", external=True)


@nox.session
def lock(session: nox.Session) -> None:
    """Write requirements/*.lock anew; `nox -s lock -- --upgrade` takes newer versions."""
    shared = ("--universal", "--python-version", "3.11", "--generate-hashes", "--quiet")
    for name, extra in (
        ("run", RUN),
        ("images", (*RUN, "--extra", "images", "--constraint", "requirements/run.lock")),
        ("dev", ("--group", "dev", "--all-extras", "--constraint", "requirements/run.lock")),
        ("docs", ("--group", "docs")),
    ):
        session.run(
            *("uv", "pip", "compile", *shared, *extra, "--no-emit-index-url"),
            *(["pyproject.toml"] if name != "docs" else []),
            *("--output-file", f"requirements/{name}.lock"),
            *session.posargs,
            env={"UV_CUSTOM_COMPILE_COMMAND": "nox -s lock"},
        )


@nox.session
def vulnerabilities(session: nox.Session) -> None:
    """Known vulnerabilities of what the locks name; FLEET_OSV is the service that knows them."""
    service = os.environ.get("FLEET_OSV", "https://api.osv.dev/v1/query")
    host = urlsplit(service)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=10).close()
    except OSError as error:
        skip(session, f"{service} cannot be reached: {error}")
        return
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        session.run(
            *("uv", "tool", "run", "--from", "pip-audit==2.10.1", "pip-audit", "--requirement"),
            *(str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"),
            *("--vulnerability-service", "osv", "--osv-url", service),
        )


def obtain(session: nox.Session, tool: str) -> str | None:
    """Return what a tool prints; None when it says that this cannot be had here."""
    is_there, told = ask(session, tool)
    return told if is_there else None


def ask(session: nox.Session, *program: str) -> tuple[bool, str]:
    """Return whether a program of ours says that this machine can, and what it prints of it."""
    done = subprocess.run(
        [BIN / "python", *program], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode not in (0, ABSENT):
        session.error(f"{' '.join(program)} ended with {done.returncode}")
    return done.returncode == 0, done.stdout.strip()


def live_cloud(session: nox.Session, absent: str) -> None:
    """Run what costs money, where there are credentials and a Pulumi CLI."""
    names = {"live-aws": ("AWS_PROFILE", "AWS_ACCESS_KEY_ID"), "live-hcloud": ("HCLOUD_TOKEN",)}
    if not any(os.environ.get(name) for name in names[session.name]):
        skip(session, absent)
        return
    cli = obtain(session, "tools/pulumi_cli.py")
    if cli is None:
        skip(session, "no Pulumi CLI: none on PATH, no download, no Go modules (see above)")
        return
    run_marked(session, "--force-enable-socket", FLEET_PULUMI=cli)


def run_where_possible(
    session: nox.Session, program: str, *options: str, marker: str = ""
) -> None:
    """Run the tests of a marker where a module of ours says that this machine can."""
    is_there, told = ask(session, "-m", program)
    if is_there:
        run_marked(session, *options, marker=marker)
    else:
        skip(session, told)


def skip(session: nox.Session, reason: str) -> None:
    """Say loudly that this session did not run, and why."""
    print(f"SKIPPED {session.name}: {reason}", flush=True)


def run_marked(session: nox.Session, *options: str, marker: str = "", **env: str) -> None:
    """Run the tests that carry a marker, the session's name, and are not long; none is a skip."""
    marker = f"{marker or session.name.replace('-', '_')} and not long"
    named = any(Path(each.partition("::")[0]).exists() for each in session.posargs)
    where = () if named else WHERE.get(session.name, ())
    ran = subprocess.run(
        [BIN / "pytest", "-m", marker, "-n", "0", "-rsfE", *options, *where, *session.posargs],
        cwd=ROOT,
        env={**os.environ, **env},
        check=False,
    )
    if ran.returncode == NO_TESTS_COLLECTED:
        skip(session, f"no test carries the marker `{marker}` yet")
    elif ran.returncode:
        session.error(f"pytest -m {session.name} ended with {ran.returncode}")


def in_memory() -> dict[str, str]:
    """Return what has tests write into memory: else they wait for a disk half of their time."""
    memory = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own there
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return {}
    there = os.statvfs(memory)
    may_run = not there.f_flag & os.ST_NOEXEC
    return {"TMPDIR": str(memory)} if may_run and there.f_bavail * there.f_frsize > _ROOM else {}


def ansible_environment() -> dict[str, str]:
    """Return what keeps ansible and its linter from writing into the home folder."""
    home = CACHE / "ansible"
    home.mkdir(parents=True, exist_ok=True)
    return {"ANSIBLE_HOME": str(home), "ANSIBLE_LOCAL_TEMP": str(home / "tmp"), "NO_COLOR": "1"}


def install_npm(npm: str, tests: str, wanted: str) -> Path | None:
    """Install what a folder of tests locks, outside the tree; return this file of it or None."""
    source = ROOT / "tests" / tests
    locked = (source / "package-lock.json").read_bytes()
    folder = CACHE / f"npm-{tests}-{hashlib.sha256(locked).hexdigest()[:16]}"
    found = folder / "node_modules" / wanted
    if found.exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(source / name, folder / name)
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"],
        cwd=folder,
        check=False,
    )
    return found if done.returncode == 0 and found.exists() else None

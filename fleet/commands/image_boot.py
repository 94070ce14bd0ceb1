"""This module boots a built image for `fleet image test`, at a stand-in or at a real server."""

import argparse
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from fleet.commands.clock import SystemClock
from fleet.commands.options import read_seconds
from fleet.commands.registries import registries_of
from fleet.errors import FleetError, WorkerBusy, WrongUsage
from fleet.facts.manifest import Manifest, Test
from fleet.images.boot import CONSOLE, Booted, Trial, boot_image
from fleet.images.folder import QCOW2, measure
from fleet.images.pass_on import PassOn
from fleet.images.qemu import choose_accelerator
from fleet.images.reception import Backend, Stage
from fleet.images.stand_in import StandIn
from fleet.ports import Console, Enrolment, Registry
from fleet.schema.model import DebusineQueue, Fleet
from fleet.store.secrets import HostSecrets

_BOOTED = "amd64"
_MARGIN = timedelta(minutes=5)
_NOTICED = 60
"""Seconds within which a server notices that a worker is gone."""


class _Server(NamedTuple):
    """Where the worker registers, with which token, and how far it has to come there."""

    backend: Backend
    token: str
    goal: Stage


def boot(
    fleet: Fleet, args: argparse.Namespace, folder: Path, manifest: Manifest, console: Console
) -> tuple[Manifest, Test, tuple[str, ...]]:
    """Boot a version; returns its manifest with the console's log, the test, and what to note."""
    limit = read_seconds("--limit", args.limit)
    if manifest.architecture != _BOOTED:
        raise FleetError(
            f"{folder}: an image for {manifest.architecture} cannot be booted here, only "
            f"{_BOOTED}; test it without --boot"
        )
    at, began = SystemClock().now(), time.monotonic()
    console.progress("trying whether kvm works")
    accelerator = choose_accelerator() if args.accelerator == "auto" else args.accelerator
    with _server(fleet, args, limit) as server:
        log = folder / CONSOLE
        trial = Trial(
            disk=folder / QCOW2,
            console=log,
            backend=server.backend,
            token=server.token,
            goal=server.goal,
            accelerator=accelerator,
            limit=limit,
        )
        booted = boot_image(trial, console.note, console.progress)
    test = Test(
        kind="boot",
        at=at,
        seconds=round(time.monotonic() - began, 1),
        problems=booted.problems,
        provides=booted.provides,
    )
    files = {**manifest.files, CONSOLE: measure(log)} if log.exists() else manifest.files
    return manifest.model_copy(update={"files": files}), test, _notes(booted)


def _notes(booted: Booted) -> tuple[str, ...]:
    if booted.problems or booted.provides:
        return ()
    told_none = (
        "its worker told no tags, as those before 0.16 do not: pools with this image go by "
        "`provides` of the image in fleet.yaml"
    )
    return (told_none,)


@contextmanager
def _server(fleet: Fleet, args: argparse.Namespace, limit: int) -> Iterator[_Server]:
    """Have a server wait for the worker meanwhile: one made for this test, or a queue's own."""
    if not args.queue:
        token = secrets.token_hex(32)
        yield _Server(StandIn(token), token, Stage.ASKED)
        return
    queue = fleet.queues.get(args.queue)
    if not isinstance(queue, DebusineQueue) or not queue.admin:
        able = [
            name
            for name, each in fleet.queues.items()
            if isinstance(each, DebusineQueue) and each.admin
        ]
        raise WrongUsage(
            f"--queue {args.queue}: not a Debusine queue with `admin`, which makes the worker's "
            f"token; there are: {', '.join(able) or 'none'}"
        )
    # Of another name, so that no run of `fleet apply` takes the worker for one that lost its
    # machine.
    name = f"{fleet.fleet}-image-test"
    secret = HostSecrets(os.environ, Path(args.file).resolve().parent)
    registry = registries_of(fleet.model_copy(update={"fleet": name}), secret)[args.queue]
    enrolment = Enrolment(
        worker=name,
        fleet=name,
        pool="image-test",
        expires=SystemClock().now() + timedelta(seconds=limit) + _MARGIN,
    )
    token = registry.enrol(enrolment)
    try:
        yield _Server(PassOn(queue.url), token, Stage.ENDED)
    finally:
        _release(registry, name)


def _release(registry: Registry, name: str) -> None:
    """Switch off a worker whose machine is gone, as soon as its server has noticed that."""
    until = time.monotonic() + _NOTICED
    while True:
        try:
            registry.release(name)
        except WorkerBusy:
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return

"""Workers over SQL: what each is doing, as the database says and not as the status page does."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Unknown, Work, Worker
from tests.builders.cases import Block, read_blocks
from tests.queues.conftest import Debusine
from tests.queues.rows import row_of, short, split
from tests.rigs.debusine import NOW

CASES = [*read_blocks(Path(__file__).parent / "workers")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_worker_is_read_as_in_its_case(debusine: Debusine, case: Block) -> None:
    worker, requests = case.parts
    number = debusine.add_worker("w-1", **yaml.safe_load(worker))
    rows = [replace(row_of(each), worker=number) for each in split(requests)]
    debusine.tables.add_requests(rows)

    assert " ".join(describe(debusine.workers()["w-1"])) == case.result


def describe(worker: Worker) -> Iterator[str]:
    """Yield the state of a worker and what else is known of it."""
    yield worker.state
    yield "static" if worker.static else f"machine {worker.machine} of {worker.pool}"
    yield from (f"runs {each}" for each in [worker.running] if each)
    yield from _at("since", worker.since)
    yield from _at("connected", worker.connected_since)
    yield from (word for word in ("away", "stranded", "draining") if getattr(worker, word))
    yield from _at("token until", worker.token_expires)
    yield from (f"uses {each}" for each in [worker.uses] if each)
    if worker.provides != ("worker:type:external",):
        yield " ".join(("provides", *worker.provides)) if worker.provides else "without tags"
    yield from (f"requires {each}" for each in worker.requires)
    if worker.work and worker.work.names:
        yield from (f"named {each}" for each in worker.work.names)
    elif worker.work and worker.work.started_at:
        yield _work(worker.work)


def _at(word: str, moment: datetime | None) -> Iterator[str]:
    if moment and moment.date() == NOW.date():
        yield f"{word} {moment:%H:%M}"


def _work(work: Work) -> str:
    tags = " ".join(map(short, work.required))
    return f"works on {work.task} {tags} of {work.requester} in {work.scope}/{work.workspace}"


def test_only_external_workers_are_listed(debusine: Debusine) -> None:
    debusine.add_worker("celery", worker_type="celery")
    debusine.add_worker("w-1")

    assert list(debusine.workers()) == ["w-1"]


def test_registry_is_empty_without_workers(debusine: Debusine) -> None:
    reading = debusine.database().read(NOW)

    assert reading.workers == ()
    assert isinstance(reading.demand, Unknown)

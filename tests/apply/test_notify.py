"""Each notice is sent once; what could not be sent is tried again, an hour later."""

from datetime import datetime, timedelta

from fleet.apply.run import MOST, send_notices
from fleet.model.plan import Plan
from tests.builders import NOW, a_notice, a_plan
from tests.builders.stores import new_store
from tests.fakes.messenger import FakeMessenger


class Sending:
    """A store and two channels, told of plans at some time."""

    def __init__(self, *, made: bool = True) -> None:
        self.store = new_store(created=made)
        self.webhook, self.command = FakeMessenger(), FakeMessenger()
        self.told: list[str] = []

    def run(self, plan: Plan, at: datetime = NOW) -> list[str]:
        """Send, and return the keys that the webhook got in this run."""
        before = len(self.webhook.sent)
        messengers = {"webhook": self.webhook, "command": self.command}
        send_notices(plan, messengers, self.store, at, self.told.append)
        bodies = [body for _, _, body in self.webhook.sent[before:]]
        return [
            each["key"]
            for body in bodies
            if isinstance(body["notices"], list)
            for each in body["notices"]
        ]


def plan_with(*keys: str) -> Plan:
    return a_plan(notices=tuple(a_notice(key=key) for key in keys))


def test_notice_is_sent_once_per_channel() -> None:
    sending = Sending()

    sent = [sending.run(plan_with(*keys)) for keys in (("a",), ("a",), ("a", "b"), ("a", "b"))]

    assert sent == [["a"], [], ["b"], []]
    assert len(sending.command.sent) == 2


def test_failed_notice_is_retried_after_an_hour() -> None:
    sending = Sending()
    sending.webhook.is_up = False
    minutes = (0, 1, 59, 61)

    for each in minutes:
        sending.run(plan_with("a"), NOW + timedelta(minutes=each))
    sending.webhook.is_up = True
    late = sending.run(plan_with("a"), NOW + timedelta(minutes=122))

    assert sending.webhook.tries == 3
    assert late == ["a"]
    assert len(sending.command.sent) == 1
    assert [text for text in sending.told if "notify.webhook" in text and "warning" in text]


def test_notice_is_sent_after_clock_was_ahead() -> None:
    sending = Sending()
    sending.webhook.is_up = False
    sending.run(plan_with("a"), NOW + timedelta(days=300))
    sending.webhook.is_up = True

    assert sending.run(plan_with("a")) == ["a"]


def test_many_notices_are_split_into_bounded_messages() -> None:
    keys = [f"k{number}" for number in range(MOST + 7)]
    sending = Sending()

    sent = [sending.run(plan_with(*keys)) for _ in range(3)]

    assert [len(each) for each in sent] == [MOST, 7, 0]


def test_notice_is_not_repeated_without_store() -> None:
    sending = Sending(made=False)

    assert sending.run(plan_with("a")) == []
    assert len(sending.told) == 1


def test_sent_notice_is_deleted_from_store_after_500_days() -> None:
    sending = Sending()
    sending.run(plan_with("a"))
    sending.run(plan_with("b"), NOW + timedelta(days=500))

    assert set(sending.store.notices.read()) == {"webhook b", "command b"}

"""Read metrics as Prometheus' own library does, which is stricter than Prometheus."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_new
from prometheus_client.parser import text_string_to_metric_families as read_old


def read_metrics(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples: the name, then the values of labels but the fleet's, to the figure.

    What the older format makes of the same text is as much.
    """
    found: dict[tuple[str, ...], float] = {}
    for family in read_new(text):  # type: ignore[no-untyped-call]  # the library says no types
        assert family.type == "gauge", family
        for sample in family.samples:
            assert next(iter(sample.labels)) == "fleet"
            found[(sample.name, *list(sample.labels.values())[1:])] = sample.value
    assert sum(len(family.samples) for family in read_old(text)) == len(found)
    return found

"""Sessions of boto3 share what is known of AWS's services, and leave it as it was."""

from fleet.state.s3 import new_session


def loader_of(session: object) -> object:
    """Return where a session reads of services."""
    return vars(session)["_session"].get_component("data_loader")


def test_sessions_read_service_definitions_once() -> None:
    assert loader_of(new_session()) is loader_of(new_session())


def test_second_session_adds_no_search_folder() -> None:
    loader = loader_of(new_session())
    before = list(vars(loader)["_search_paths"])

    new_session()

    assert vars(loader)["_search_paths"] == before
    assert len(set(before)) == len(before)

"""Secrets are taken out of what is said, in every form, and nothing else is."""

from fleet.state.processes import find_tokens, mask


def test_short_text_is_not_masked() -> None:
    assert mask("a 10 m hole", ("10", "")) == "a 10 m hole"


def test_values_in_user_data_are_masked() -> None:
    words = find_tokens('- {path: /etc/token, content: "deadbeefdeadbeef"}\n')

    assert "deadbeefdeadbeef" in words


def test_secret_within_another_is_masked_completely() -> None:
    assert mask("it was longsecret", ("long", "longsecret")) == "it was ***"

"""Secrets are taken out of what is said, in every form, and nothing else is."""

from fleet.state.processes import find_tokens, mask


def test_short_text_is_not_masked() -> None:
    assert mask("a 10 m hole", ("10", "")) == "a 10 m hole"


def test_the_words_of_user_data_are_secrets() -> None:
    words = find_tokens('- {path: /etc/token, content: "deadbeefdeadbeef"}\n')

    assert "deadbeefdeadbeef" in words


def test_a_secret_within_another_leaves_nothing_of_the_longer_one() -> None:
    assert mask("it was longsecret", ("long", "longsecret")) == "it was ***"

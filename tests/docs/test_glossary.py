"""The glossary holds one word per idea, so no word stands in it twice for the same thing."""

import re
from collections import defaultdict

from tests.rigs.process import ROOT

ROW = re.compile(r"^\| \*\*(?P<word>.+?)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)


def test_repeated_glossary_word_names_its_context_each_time() -> None:
    meanings: defaultdict[str, list[str]] = defaultdict(list)
    for row in ROW.finditer((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")):
        meanings[row["word"]].append(row["meaning"])

    assert 26 < len(meanings) <= 61
    twice = {word: said for word, said in meanings.items() if len(said) > 1}
    assert [w for w, said in twice.items() if not all(m.startswith("Of a") for m in said)] == []

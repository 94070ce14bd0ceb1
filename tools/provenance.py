"""Print how a GitLab job built files: SLSA provenance v1, as a statement of in-toto.

`provenance.py [--base NAME@sha256:DIGEST] FILE...`; for an image (*.oci.tar), the statement also
contains the digest of the manifest, which registries use as the id of the image.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.image_sbom import manifest_digest


def main() -> int:
    """Print the provenance of the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="the image that an image stands on, by digest")
    parser.add_argument("files", nargs="+", type=Path)
    asked = parser.parse_args()
    try:
        print(json.dumps(statement(asked.files, os.environ, base=asked.base), indent=1))
    except KeyError as missing:
        print(f"provenance: {missing} is not set: this is for a job of GitLab", file=sys.stderr)
        return 1
    return 0


def statement(
    files: Sequence[Path], job: Mapping[str, str], *, base: str | None = None
) -> dict[str, Any]:
    """Return the provenance of files; `job` has GitLab's predefined variables."""
    project, tag = job["CI_PROJECT_URL"], job["CI_COMMIT_TAG"]
    source = f"git+{project}.git@refs/tags/{tag}"
    resolved = [{"uri": source, "digest": {"gitCommit": job["CI_COMMIT_SHA"]}}]
    if base:
        name, _, digest = base.partition("@sha256:")
        resolved.append({"uri": f"docker://{name}", "digest": {"sha256": digest}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [each for file in files for each in _subjects(file)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{project}/-/blob/{tag}/docs/how-to/release.md",
                "externalParameters": {"source": source, "job": job["CI_JOB_NAME"], "base": base},
                "resolvedDependencies": resolved,
            },
            "runDetails": {
                "builder": {"id": f"{project}/-/runners/{job['CI_RUNNER_ID']}"},
                "metadata": {
                    "invocationId": job["CI_JOB_URL"],
                    "startedOn": job["CI_JOB_STARTED_AT"],
                },
            },
        },
    }


def _subjects(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as content:
        digests = {file.name: hashlib.file_digest(content, "sha256").hexdigest()}
    if file.name.endswith(".oci.tar"):
        digests[f"{file.name}/manifest"] = manifest_digest(file)
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]


if __name__ == "__main__":
    sys.exit(main())

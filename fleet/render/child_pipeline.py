"""This module writes a child pipeline for GitLab: a job for each image that is due.

A pipeline without a job is none for GitLab: where nothing is due, one job says so.
"""

import yaml

from fleet.promotion.due import DueImage, DueReport
from fleet.render.due_text import commands_of

_FLEET = ".venv/bin/fleet"


def to_child_pipeline(report: DueReport, builds: str) -> str:
    """Return the pipeline; `builds` is the folder of builds, as seen from the checkout."""
    due = [image for image in report.images if image.is_due]
    jobs = {f"image {image.image}": _job(image, builds) for image in due}
    pipeline = {
        "stages": ["images"],
        "default": {"image": "$FLEET_IMAGE"},
        **(jobs or {"nothing is due": {"stage": "images", "script": ["echo no image is due"]}}),
    }
    return yaml.safe_dump(pipeline, sort_keys=False, allow_unicode=True, width=1000)


def _job(image: DueImage, builds: str) -> dict[str, object]:
    return {
        "stage": "images",
        "resource_group": f"image-{image.image}",
        "interruptible": False,
        "timeout": "3 hours",
        # Tokens that may publish live in this environment.
        "environment": {"name": "fleet", "action": "access"},
        "script": [
            "make setup-images",
            *(
                f'{_FLEET}{command.removeprefix("fleet")} --file "$FLEET_FILE"'
                for command in commands_of(image)
            ),
        ],
        "artifacts": {
            "when": "always",
            "expire_in": "30 days",
            "paths": [
                f"{builds}/{image.image}/*/{name}"
                for name in ("build.log", "manifest.json", "sbom.spdx.json")
            ],
        },
    }

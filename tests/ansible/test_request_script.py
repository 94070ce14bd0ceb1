"""The script that `fleet image build --on QUEUE` sends along, run in a real root as the task does.

With `nox -s images -- --every-suite`: Ansible and all it needs are installed in that root first.
"""

import json
from pathlib import Path

import pytest

from fleet.images.debusine_build import (
    LISTED,
    customization_script,
    request_data,
)
from fleet.images.packages import read_packages
from fleet.images.records import BuildOrder
from fleet.images.role import role_variables
from fleet.schema.model import ImageRecipe
from tests.ansible import roots
from tests.ansible.roots import chrooted
from tests.builders import NOW
from tests.live.chroot import Impossible, archive

pytestmark = pytest.mark.images

RECIPE = ImageRecipe(
    suite="trixie", architecture="amd64", api_url="https://debusine.example.org", enable_tasks=[]
)


def test_script_installs_worker_in_root_and_removes_ansible(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if not request.config.getoption("--every-suite"):
        pytest.skip("Ansible in a root takes minutes: --every-suite")
    try:
        root = roots.unpack("trixie", tmp_path)
    except Impossible as reason:
        pytest.skip(str(reason))
    order = BuildOrder(
        image="own", version="20261121T080000Z", recipe=RECIPE, built_at=NOW, built_by="a test"
    )
    script = customization_script(role_variables(RECIPE), ("iproute2",))
    data = request_data(order, archive())
    options = json.loads(json.dumps(data["bootstrap_options"]))
    chrooted(root, "apt-get", "-qq", "update")
    wanted = ("apt-get", "-qq", "--yes", "--no-install-recommends", "install")
    chrooted(root, *wanted, *filter(None, options["extra_packages"]))
    (root / "customization_script").write_text(script, encoding="utf-8")
    (root / "customization_script").chmod(0o555)

    chrooted(root, "/customization_script")

    config = (root / "etc/debusine/worker/config.ini").read_text(encoding="utf-8")
    assert "api-url = https://debusine.example.org/api\n" in config
    assert chrooted(root, "systemctl", "is-enabled", "debusine-worker").strip() == "enabled"
    packages = chrooted(root, "dpkg-query", "-W", "-f", "${Package}\\n").split()
    assert [name for name in packages if name.startswith("ansible")] == []
    assert {"debusine-worker", "uidmap"} <= set(packages)
    with (root / LISTED.lstrip("/")).open(encoding="utf-8") as lines:
        listed = {each.name: each for each in read_packages(lines)}
    assert sorted(listed) == sorted(packages)
    assert "trixie/main at http" in listed["debusine-worker"].origin
    assert len(listed["debusine-worker"].sha256) == 64
    assert list((root / "tmp").iterdir()) == []
    assert roots.processes_in(root) == []

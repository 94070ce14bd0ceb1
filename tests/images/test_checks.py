"""What is wrong with a built image, and what to do about it."""

import pytest

from fleet.images.checks import check_image
from tests.builders.image_trees import ImageTree, a_recipe
from tests.builders.sentences import tells

WANTED = "/etc/systemd/system/multi-user.target.wants/debusine-worker.service"
ROOTS = "/root"


@pytest.fixture
def image() -> ImageTree:
    return ImageTree()


def problems(image: ImageTree, **recipe: object) -> list[str]:
    return list(check_image(image, a_recipe(**recipe)))


def test_usable_image_has_no_problem(image: ImageTree) -> None:
    everything = {
        "enable_backends": ["unshare", "qemu", "incus", "incus-lxc", "incus-vm"],
        "enable_tasks": ["autopkgtest", "sbuild", "mmdebstrap", "simplesystemimagebuild"],
    }

    assert problems(image, **everything) == []


def test_missing_service_is_a_problem(image: ImageTree) -> None:
    image.remove("/usr/lib/systemd/system/debusine-worker.service")

    (problem,) = problems(image)
    path = "/usr/lib/systemd/system/debusine-worker.service"
    assert tells(problem, path, "missing", "package debusine-worker")


def test_disabled_service_is_a_problem(image: ImageTree) -> None:
    image.remove(WANTED)

    (problem,) = problems(image)
    assert tells(problem, WANTED, "missing", "`systemctl enable debusine-worker.service`")


def test_masked_service_is_a_problem(image: ImageTree) -> None:
    image.link("/etc/systemd/system/debusine-worker.service", "/dev/null")

    (problem,) = problems(image)
    assert tells(problem, "/etc/systemd/system/debusine-worker.service", "masks", "remove")


def test_missing_network_service_is_a_problem(image: ImageTree) -> None:
    wants = "/etc/systemd/system/multi-user.target.wants"
    image.remove(f"{wants}/systemd-networkd.service")

    (problem,) = problems(image)

    assert tells(problem, f"{wants}/systemd-networkd.service", "missing", "nothing")
    image.link(f"{wants}/networking.service", "/usr/lib/systemd/system/networking.service")
    assert problems(image) == []


def test_missing_worker_user_is_a_problem(image: ImageTree) -> None:
    image.put("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")

    (problem,) = problems(image)
    assert tells(problem, "/etc/passwd", "user debusine-worker", "package debusine-worker")


@pytest.mark.parametrize("path", ["/etc/debusine/worker", "/var/lib/debusine/worker"])
def test_worker_folder_of_another_user_is_a_problem(image: ImageTree, path: str) -> None:
    image.folder(path, owner=0)

    (problem,) = problems(image)

    assert tells(problem, path, "0:0", "debusine-worker", "998:998", "debusine-worker")


@pytest.mark.parametrize("mode", [0o700, 0o777])
@pytest.mark.parametrize("path", ["/etc/debusine/worker", "/var/lib/debusine/worker"])
def test_worker_folder_writable_by_others_is_a_problem(
    image: ImageTree, path: str, mode: int
) -> None:
    image.folder(path, owner=998, mode=mode)

    (problem,) = problems(image)

    assert tells(problem, path, f"{mode:04o}", "0755")


def test_missing_worker_folder_is_a_problem(image: ImageTree) -> None:
    image.remove("/var/lib/debusine/worker")

    (problem,) = problems(image)

    assert tells(problem, "/var/lib/debusine/worker", "no folder")


@pytest.mark.parametrize("path", ["/etc/subuid", "/etc/subgid"])
def test_unshare_without_subordinate_ids_is_a_problem(image: ImageTree, path: str) -> None:
    image.put(path, "somebody:100000:65536\n")

    (problem,) = problems(image)

    assert tells(problem, path, "debusine-worker", "unshare")
    assert problems(image, enable_backends=["incus"]) == []


def test_configuration_is_from_user_data_unless_in_image(image: ImageTree) -> None:
    path = "/etc/debusine/worker/config.ini"
    image.put(path, "[General]\napi-url = https://debusine.example.org/api\n")

    assert problems(image, api_url="https://debusine.example.org/") == []
    (early,) = problems(image)
    assert tells(early, path, "api_url", "remove", "api_url", "fleet.yaml")
    (other,) = problems(image, api_url="https://other.example.org")
    assert tells(other, path, "https://other.example.org", "api_url", "build")


def test_user_data_without_cloud_init_is_a_problem(image: ImageTree) -> None:
    image.remove("/usr/bin/cloud-init")
    image.put("/etc/cloud/cloud-init.disabled", "")

    missing, disabled = problems(image)
    assert tells(missing, "/usr/bin/cloud-init", "missing", "token", "install cloud-init")
    assert tells(disabled, "/etc/cloud/cloud-init.disabled", "token", "remove")


@pytest.mark.parametrize(
    ("recipe", "program", "what"),
    [
        ({}, "unshare", "backend unshare"),
        ({}, "newuidmap", "backend unshare"),
        ({}, "newgidmap", "backend unshare"),
        ({}, "ip", "backend unshare"),
        ({"enable_backends": ["qemu"]}, "qemu-img", "backend qemu"),
        ({"enable_backends": ["qemu"]}, "autopkgtest-virt-qemu", "backend qemu"),
        ({"enable_backends": ["qemu"]}, "qemu-system-x86_64", "backend qemu"),
        ({"enable_backends": ["incus"]}, "incus", "backend incus"),
        ({"enable_backends": ["incus"]}, "autopkgtest-virt-incus", "backend incus"),
        ({"enable_backends": ["incus"]}, "dnsmasq", "backend incus"),
        ({"enable_backends": ["incus-lxc"]}, "dnsmasq", "backend incus-lxc"),
        ({"enable_backends": ["incus-vm"]}, "dnsmasq", "backend incus-vm"),
        ({"enable_backends": ["incus-vm"]}, "qemu-system-x86_64", "backend incus-vm"),
        ({}, "autopkgtest", "task autopkgtest"),
        ({}, "sbuild", "task sbuild"),
        ({"enable_tasks": ["mmdebstrap"]}, "mmdebstrap", "task mmdebstrap"),
        ({"enable_tasks": ["mmdebstrap"]}, "arch-test", "task mmdebstrap"),
        (
            {"enable_tasks": ["simplesystemimagebuild"]},
            "debefivm-create",
            "task simplesystemimagebuild",
        ),
        ({"enable_tasks": ["simplesystemimagebuild"]}, "mcopy", "task simplesystemimagebuild"),
        ({"enable_tasks": ["simplesystemimagebuild"]}, "sfdisk", "task simplesystemimagebuild"),
    ],
)
def test_missing_program_of_backend_or_task_is_a_problem(
    image: ImageTree, recipe: dict[str, object], program: str, what: str
) -> None:
    image.remove(f"/usr/bin/{program}")

    (problem,) = problems(image, **recipe)
    name = what.split()[1]
    assert tells(problem, f"/usr/bin/{program}", "missing", what, "debusine_worker", name)


def test_unexecutable_or_dangling_program_is_missing(
    image: ImageTree,
) -> None:
    image.put("/usr/bin/sbuild", "#!", mode=0o644)
    image.link("/usr/bin/autopkgtest", "autopkgtest")

    assert [each.split()[0] for each in problems(image)] == [
        "/usr/bin/autopkgtest",
        "/usr/bin/sbuild",
    ]


def test_qemu_matches_architecture(image: ImageTree) -> None:
    (problem,) = problems(image, enable_backends=["qemu"], architecture="arm64")

    assert problem.startswith("/usr/bin/qemu-system-aarch64 is missing")


@pytest.mark.parametrize("path", ["/etc/machine-id", "/var/lib/dbus/machine-id"])
def test_machine_id_in_image_is_a_problem(image: ImageTree, path: str) -> None:
    image.put(path, "uninitialized\n")
    assert problems(image) == []

    image.put(path, "0123456789abcdef0123456789abcdef\n")

    (problem,) = problems(image)
    assert tells(problem, path, "id", "empty")


def test_host_name_of_builder_in_image_is_a_problem(image: ImageTree) -> None:
    image.put("/etc/hostname", "builder-7\n")

    (problem,) = problems(image)
    assert tells(problem, "/etc/hostname", "builder-7", "localhost")


def test_name_servers_of_builder_in_image_are_a_problem(image: ImageTree) -> None:
    image.put("/etc/resolv.conf", "# nobody\n")
    assert problems(image) == []

    image.put("/etc/resolv.conf", "nameserver 192.0.2.1\n")

    (problem,) = problems(image)
    assert tells(problem, "/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")


@pytest.mark.parametrize(
    "path", ["/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret"]
)
def test_shared_random_seed_in_image_is_a_problem(image: ImageTree, path: str) -> None:
    image.put(path, "0123")

    (problem,) = problems(image)

    assert tells(problem, path, "all machines")


@pytest.mark.parametrize(
    ("folder", "name", "do"),
    [
        ("/var/lib/apt/lists", "deb.example.org_Packages", "rm -r /var/lib/apt/lists/*"),
        ("/var/lib/apt/lists/partial", "deb.example.org_x", "rm -r /var/lib/apt/lists/*"),
        ("/var/cache/apt/archives", "sbuild_0.8_all.deb", "apt-get clean"),
        ("/var/cache/apt/archives/partial", "sbuild_0.8_all.deb", "apt-get clean"),
        ("/var/cache/apt", "pkgcache.bin", "apt-get clean"),
    ],
)
def test_apt_files_in_image_are_a_problem(
    image: ImageTree, folder: str, name: str, do: str
) -> None:
    image.put(f"{folder}/{name}", "x")
    image.put(f"{folder}/zz", "x")

    (problem,) = problems(image)
    assert tells(problem, folder, name, "1 more", f"`{do}`")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("99mmdebstrap", ""),
        ("10validity", 'Acquire::Check-Valid-Until "false";\n'),
        ("20proxy", 'Acquire::http::Proxy "http://192.0.2.1:3142";\n'),
    ],
)
def test_proxy_of_builder_in_image_is_a_problem(image: ImageTree, name: str, text: str) -> None:
    image.put(f"/etc/apt/apt.conf.d/{name}", text)

    (problem,) = problems(image)
    assert tells(problem, f"/etc/apt/apt.conf.d/{name}")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/usr/sbin/policy-rc.d", "services"),
        (f"{ROOTS}/.ansible", "Ansible"),
        (f"{ROOTS}/.bash_history", "typed"),
        (
            "/var/lib/cloud/instance",
            "cloud-init",
        ),
        ("/var/log/journal/0123456789abcdef", "journal"),
    ],
)
def test_build_files_in_image_are_a_problem(image: ImageTree, path: str, said: str) -> None:
    image.put(path, "x")

    (problem,) = problems(image)
    assert tells(problem, path, said)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/debusine/worker/activation-token",
        "/etc/debusine/worker/token",
        f"{ROOTS}/.netrc",
        "/etc/apt/auth.conf",
        "/etc/apt/auth.conf.d/private.conf",
        "/etc/ssh/ssh_host_ed25519_key",
        f"{ROOTS}/.ssh/id_ed25519",
        f"{ROOTS}/.ssh/authorized_keys",
        "/home/debian/.ssh/authorized_keys",
        "/etc/ssl/private/server.key",
    ],
)
def test_secret_in_image_is_a_problem(image: ImageTree, path: str) -> None:
    image.put(path, "")
    assert problems(image) == []

    image.put(path, "secret")

    (problem,) = problems(image)
    assert tells(problem, path, "secret")


@pytest.mark.parametrize(
    ("password", "what"), [("$y$j9T$abc", "a password"), ("", "an empty password")]
)
def test_account_with_password_is_a_problem(image: ImageTree, password: str, what: str) -> None:
    image.put("/etc/shadow", f"root:{password}:20000:0:99999:7:::\ndaemon:*:20000::::::\n")

    (problem,) = problems(image)
    assert tells(problem, "/etc/shadow", "root", what, "`passwd --lock root`")

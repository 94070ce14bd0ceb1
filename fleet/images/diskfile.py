"""Create a disk from a root folder with file operations only, without a loop device or a mount.

The disk has a GPT with two partitions: a FAT boot partition, then the ext4 root. The root is last
so that it can grow at boot. UEFI boots with systemd-boot; on amd64, BIOS boots with syslinux.
"""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError
from fleet.images.programs import run

_MIB = 1 << 20
_SECTOR = 512
_BOOT_START_MIB = 1
"""Start of the boot partition. The GPT and the BIOS boot code are before it."""
_BOOT_SIZE_MIB = 128
_FREE_MIB = 768
"""Free space of the root file system before it grows to the size of the machine's disk."""
BOOT_CODE = Path("/usr/lib/syslinux/mbr/gptmbr.bin")
"""Boot code for BIOS, from the package syslinux-common."""
_BOOT_CODE_BYTES = 440
"""Size of the boot code in the first sector, before the disk signature and the partitions."""
_ROOT_TYPES = {
    "amd64": "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709",
    "arm64": "B921B045-1DF0-41C3-AF44-4C6F280D3FAE",
    "riscv64": "72EC70A6-CF74-40E6-BD49-4BDA08E8F224",
}
_SYSLINUX = """SERIAL 0
DEFAULT fleet
LABEL fleet
LINUX /vmlinuz
INITRD /initrd.img
APPEND {options}
"""
EFI_NAMES = {"amd64": "x64", "arm64": "aa64", "riscv64": "riscv64"}
_CONSOLES = {"arm64": "ttyAMA0"}


@dataclass(frozen=True)
class DiskSpec:
    """The content and the identifiers of a disk."""

    root: Path
    architecture: str
    name: str
    """Seed of the UUIDs, so that the next build of the disk has the same UUIDs."""
    epoch: int
    """Unix time of all files and file systems on the disk."""

    def id(self, part: str) -> uuid.UUID:
        """Return the UUID of a part of the disk, such as `root`."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"fleet:{self.name}:{part}")


def programs(architecture: str) -> tuple[str, ...]:
    """Return the programs that create a disk of this architecture."""
    bios = ("syslinux",) if architecture == "amd64" else ()
    return ("mkfs.vfat", "mcopy", "mke2fs", "sfdisk", "qemu-img", *bios)


def lacking(architecture: str, boot_code: Path = BOOT_CODE) -> str:
    """Return an error if the BIOS boot code is missing; empty if present or not needed."""
    if architecture != "amd64" or boot_code.exists():
        return ""
    return f"this computer lacks {boot_code}; on Debian: apt install syslinux-common"


def prepare_root(plan: DiskSpec) -> None:
    """Write the UUID of the root file system into its fstab."""
    fstab = plan.root / "etc" / "fstab"
    kept = fstab.read_text(encoding="utf-8").splitlines() if fstab.exists() else []
    lines = [line for line in kept if not line.startswith(("#", "UUID="))]
    lines.insert(0, f"UUID={plan.id('root')} / ext4 errors=remount-ro 0 1")
    fstab.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_raw(plan: DiskSpec, raw: Path, log: Path) -> None:
    """Write the disk as a sparse raw file."""
    root_at = _BOOT_START_MIB + _BOOT_SIZE_MIB
    root_size = _count_mebibytes(plan.root) + _FREE_MIB
    with raw.open("wb") as file:
        file.truncate((root_at + root_size + 1) * _MIB)
    environment = {
        "SOURCE_DATE_EPOCH": str(plan.epoch),
        "E2FSPROGS_FAKE_TIME": str(plan.epoch),
        "MTOOLS_SKIP_CHECK": "1",
        "TZ": "UTC",
    }
    table = _partition_table(plan, root_size)
    run("sfdisk", "--quiet", raw, log=log, stdin=table.encode(), env=environment)
    root_id = str(plan.id("root"))
    run(
        *("mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-U", root_id, "-m", "1"),
        *("-d", plan.root, "-E", f"hash_seed={root_id},offset={root_at * _MIB}", raw),
        f"{root_size}M",
        log=log,
        env=environment,
    )
    _write_boot_partition(plan, raw, log, environment)


def write_qcow2(raw: Path, qcow2: Path, log: Path) -> None:
    """Convert a raw disk to compressed qcow2."""
    options = ("-o", "compression_type=zstd", "-c", "-W", "-m", "4")
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, qcow2, log=log)


def _partition_table(plan: DiskSpec, root_size: int) -> str:
    legacy = ', attrs="LegacyBIOSBootable"' if plan.architecture == "amd64" else ""
    kind = _ROOT_TYPES[plan.architecture]
    boot_id, root_id = plan.id("boot"), plan.id("root partition")
    return f"""label: gpt
label-id: {plan.id("disk")}
start={_BOOT_START_MIB}MiB, size={_BOOT_SIZE_MIB}MiB, type=U, name=boot, uuid={boot_id}{legacy}
size={root_size}MiB, type={kind}, name=root, uuid={root_id}
"""


def _write_boot_partition(
    plan: DiskSpec, raw: Path, log: Path, environment: dict[str, str]
) -> None:
    """Write the boot partition with kernel, initrd and boot loaders."""
    offset = _BOOT_START_MIB * _MIB
    number = f"{plan.id('boot').int & 0xFFFFFFFF:08x}"
    run(
        *("mkfs.vfat", "-F", "32", "-n", "BOOT", "-i", number, "--invariant"),
        *("-s", "1", "-h", str(offset // _SECTOR)),
        *("--offset", str(offset // _SECTOR), raw, str(_BOOT_SIZE_MIB * 1024)),
        log=log,
        env=environment,
    )
    tree = plan.root.with_name("boot")
    _write_boot_files(plan, tree)
    drive = f"{raw}@@{offset}"
    run("mcopy", "-s", "-m", "-i", drive, *sorted(tree.iterdir()), "::/", log=log, env=environment)
    if plan.architecture == "amd64":
        install = ("--install", "--offset", str(offset), "--directory", "/syslinux")
        run("syslinux", *install, raw, log=log, env=environment)
        with raw.open("r+b") as file:
            file.write(BOOT_CODE.read_bytes()[:_BOOT_CODE_BYTES])


def _write_boot_files(plan: DiskSpec, tree: Path) -> None:
    """Write the files of the boot partition into a folder."""
    kernel, initrd = newest_kernel(plan.root)
    efi = EFI_NAMES[plan.architecture]
    loader = plan.root / f"usr/lib/systemd/boot/efi/systemd-boot{efi}.efi"
    console = _CONSOLES.get(plan.architecture, "ttyS0")
    options = f"root=UUID={plan.id('root')} rw console=tty0 console={console}"
    entry = f"title fleet\nlinux /vmlinuz\ninitrd /initrd.img\noptions {options}\n"
    files = {
        f"EFI/BOOT/BOOT{efi.upper()}.EFI": loader.read_bytes(),
        "vmlinuz": kernel.read_bytes(),
        "initrd.img": initrd.read_bytes(),
        "loader/loader.conf": b"default fleet.conf\ntimeout 0\n",
        "loader/entries/fleet.conf": entry.encode(),
    }
    if plan.architecture == "amd64":
        files["syslinux/syslinux.cfg"] = _SYSLINUX.format(options=options).encode()
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (plan.epoch, plan.epoch))


def newest_kernel(root: Path) -> tuple[Path, Path]:
    """Return the most recently written kernel in a root folder, and its initrd."""
    kernels = sorted((root / "boot").glob("vmlinu[xz]-*"), key=lambda path: path.stat().st_mtime)
    if not kernels:
        raise FleetError("the root has no kernel in /boot, so no machine can boot it")
    kernel = kernels[-1]
    initrd = kernel.with_name(f"initrd.img-{kernel.name.partition('-')[2]}")
    if not initrd.exists():
        raise FleetError(f"the root has no {initrd.name} in /boot, so no machine can boot it")
    return kernel, initrd


def _count_mebibytes(root: Path) -> int:
    """Return the size in MiB, rounded up, that the root's files need in a file system."""
    size = 0
    for folder, _, names in os.walk(root):
        for name in (*names, "."):
            size += 4096 + os.lstat(os.path.join(folder, name)).st_blocks * _SECTOR  # noqa: PTH118 - many
    return size * 105 // 100 // _MIB + 1

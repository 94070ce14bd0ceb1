"""A pools.yaml as large installations write it: 26 pools over four clouds, some long commands."""

from textwrap import indent

_SHARED = """\
  cmd_livecheck: "resalloc-check-vm-ip || exit 1 ; copr-check-disk --min 20G --host $RESALLOC_NAME"
  cmd_release: "/var/lib/resallocserver/provision/vm-release --pool $RESALLOC_POOL_ID"
  livecheck_period: 180
  livecheck_attempts: 3
  reuse_opportunity_time: 90
  reuse_max_count: 8
  reuse_max_time: 1800
"""
_SCRIPT = """\
set -e
name=$RESALLOC_NAME
export IBMCLOUD_HOME=$HOME/ibm
for try in 1 2 3; do
  ibmcloud login -q -r {zone} --apikey @$HOME/.ibm-key && break
  sleep 10
done
""" + "".join(
    f"ibmcloud is volume-create $name-{n} 10iops-tier {{zone}} --capacity 160 --output json >&2\n"
    for n in range(14)
)


def pools_yaml() -> str:
    """Return the text of the file."""
    pools = [
        *(_hypervisor("x86_64", n, 20) for n in range(1, 5)),
        *(_hypervisor("ppc64le", n, 12) for n in range(1, 6)),
        _hypervisor("s390x", 1, 3),
        *(
            _aws(arch, kind)
            for arch in ("x86_64", "aarch64")
            for kind in ("spot_a", "spot_b", "normal", "reserved", "powerful")
        ),
        *(_ibm("s390x", zone) for zone in ("eu-gb-1", "eu-gb-2", "jp-tok-1")),
        *(_ibm("x86_64", zone) for zone in ("us-east-1", "us-east-2", "eu-es-1")),
    ]
    return "\n".join(pools)


def _hypervisor(arch: str, number: int, most: int) -> str:
    name = f"copr_hv_{arch}_{number:02}_prod"
    command = "/var/lib/resallocserver/provision/libvirt-new --swap-vol-size 168"
    host = f"qemu+ssh://copr@vmhost-{arch}-{number:02}.example.org/system"
    return (
        _head(name, f"guests of vmhost {arch} {number}", (most, 2, most // 3), arch, 0)
        + f'  cmd_new: "{command} --arch {arch} --connection {host} --image copr-{arch}-trixie"\n'
        + f'  cmd_delete: "/var/lib/resallocserver/provision/libvirt-delete --connection {host}"\n'
        + f"  cmd_list: \"virsh -c {host} list --all --name | grep '^{name}'\"\n"
        + "  named_counters: [ip]\n"
        + _SHARED
    )


def _aws(arch: str, kind: str) -> str:
    name = f"aws_{arch}_{kind}_prod"
    command = "copr-resalloc-aws-new --instance-type c7.xlarge --root-volume-size 160"
    spot = " --spot-price 0.3" if "spot" in kind else ""
    head = _head(name, f"{kind} of {arch}", (30, 6, 5), arch, -2 if spot else -10)
    if kind == "powerful":
        head += "  tags_on_demand: [on_demand_powerful]\n"
    return (
        head
        + "  start_delay: 10\n"
        + f'  cmd_new: "{command} --arch {arch} --security-group sg-0a1b2c3d{spot}"\n'
        + '  cmd_delete: "copr-resalloc-aws-delete --region us-east-1"\n'
        + f'  cmd_list: "copr-resalloc-aws-list --pool {name} --region us-east-1"\n'
        + _SHARED
    )


def _ibm(arch: str, zone: str) -> str:
    name = f"copr_ic_{arch}_{zone.replace('-', '_')}_prod"
    return (
        _head(name, f"IBM cloud, {zone}", (5, 2, 2), arch, -4)
        + "  cmd_new: |\n"
        + indent(_SCRIPT.format(zone=zone), "    ")
        + f'  cmd_delete: "copr-resalloc-ibm-cloud-delete --zone {zone} --all-volumes"\n'
        + f'  cmd_list: "copr-resalloc-ibm-cloud-list --zone {zone} --pool {name}"\n'
        + _SHARED
    )


def _head(name: str, said: str, counts: tuple[int, int, int], arch: str, priority: int) -> str:
    most, starting, spare = counts
    return (
        f"{name}:\n  description: {said}\n  max: {most}\n  max_starting: {starting}\n"
        f"  max_prealloc: {spare}\n  tags:\n    - copr_builder\n"
        f"    - {{name: arch_{arch}, priority: {priority}}}\n"
        "    - {name: arch_noarch, priority: -50}\n"
    )

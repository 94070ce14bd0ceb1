# Functions that run as root inside the root file system of an image: one that is baked here, one
# that a task of Debusine creates, a rented machine, or a copy that runs the jobs of a test.
# fleet sends this text with a call of one function. The caller has set -eu.
listed=/usr/share/fleet/packages.tsv

# Print each package with its source, its archive, and its checksum in the archive. rpm does not
# record the archive of a package.
list_packages() {
    if ! command -v apt-get >/dev/null; then
        rpm -qa --queryformat '%{NAME}\t%{EVR}\t%{ARCH}\t%{SOURCERPM}\n' |
            sed -nE 's/\t([^\t]+)-([^-\t]+-[^-\t]+)[.]src[.]rpm$/\t\1\t\2\t\t/p'
        return
    fi
    python3 - <<'END'
import apt_pkg
apt_pkg.init()
cache = apt_pkg.Cache(None)
sources, records = apt_pkg.SourceList(), apt_pkg.PackageRecords(cache)
sources.read_main_list()
for package in cache.packages:
    version = package.current_ver
    if version is None:
        continue
    origin = checksum = ""
    for file, place in version.file_list:
        records.lookup((file, place))
        index = sources.find_index(file)
        if index is not None:
            uri, release = index.describe.split()[:2]
            found = records.hashes.find("sha256")
            origin, checksum = f"{release} at {uri}", found.hashvalue if found else ""
            break
    source = records.source_pkg or package.name, records.source_ver or version.ver_str
    print(package.name, version.ver_str, version.arch, *source, origin, checksum, sep="\t")
END
}

# Remove identity and traces of the builder from the top folder of an image.
forget() {
    rm -rf var/lib/apt/lists/* var/lib/cloud/* var/log/apt/* var/log/journal/*
    rm -rf var/log/*.log var/log/dnf* tmp/.ansible usr/sbin/policy-rc.d
    rm -rf root/.ansible root/.bash_history root/.cache root/.ssh
    rm -rf etc/ssh/ssh_host_* var/lib/dbus/machine-id
    rm -rf var/lib/systemd/random-seed var/lib/systemd/credential.secret
    : >etc/machine-id
    echo localhost >etc/hostname
}

# Install pending updates and Ansible's requirements on a machine.
prepare_machine() {
    export DEBIAN_FRONTEND=noninteractive
    if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null || true; fi
    if command -v apt-get >/dev/null; then
        apt-get -q -y update
        apt-get -q -y -o Dpkg::Options::=--force-confold dist-upgrade
        apt-get -q -y --no-install-recommends install \
            python3 python3-apt python3-debian ca-certificates
    else
        dnf -q -y upgrade
        dnf -q -y install python3
        dnf -q -y install python3-libdnf5 || dnf -q -y install python3-dnf
    fi
}

# Print the operating system of a machine, such as fedora-43.
print_system() {
    . /etc/os-release
    echo "$ID-${VERSION_ID-}"
}

# Remove the identity, credentials and logs of a machine.
clean_machine() {
    export DEBIAN_FRONTEND=noninteractive
    if command -v apt-get >/dev/null; then
        apt-get -q -y --purge autoremove
        apt-get clean
    else
        dnf -q clean all
    fi
    if command -v cloud-init >/dev/null; then cloud-init clean --logs --seed; fi
    test -L /etc/resolv.conf || : >/etc/resolv.conf
    usermod --password '*' root
    cd /
    forget
    sync
}

# Run the role in a root that a task of Debusine creates. Variables: role (a tar archive of the
# folder ansible, gzip and base64), variables (of the role), wanted (packages).
customize() {
    export DEBIAN_FRONTEND=noninteractive
    export HOME=/root LC_ALL=C.UTF-8
    work=$(mktemp -d)
    echo "$role" | base64 --decode | tar --extract --gzip --directory "$work"
    apt-get --quiet update
    apt-get --yes --quiet --no-install-recommends install ansible-core $wanted
    ansible-playbook --inventory localhost, --connection local \
        --extra-vars "$variables" "$work/ansible/worker.yml"
    rm -rf "$work"
    apt-get --yes --quiet purge --autoremove ansible-core
    # The task runs mkfs.ext4 in the locale C, which refuses other than ASCII names: a CA has one.
    LC_ALL=C find / -xdev -depth -name '*[! -~]*' -print -delete
    LC_ALL=C sed --in-place '/[^ -~]/d' /etc/ca-certificates.conf
    update-ca-certificates --fresh
    # The task's debefivm-create sets no root password, names the machine and keeps apt's lists.
    usermod --password '*' root
    rm -f /etc/systemd/system/serial-getty@.service.d/autologin.conf
    sed --in-place '/^127[.]0[.]1[.]1 /d' /etc/hosts
    apt-get clean
    mkdir -p "${listed%/*}"
    list_packages >$listed
    cd /
    forget
}

# Print the devices of a machine that jobs with virtual machines need.
list_devices() {
    test ! -w /dev/kvm || echo kvm
    test ! -e /dev/vhost-vsock || echo vhost-vsock
}

# Copy the root of a machine, and print the folder of the copy.
copy_root() {
    top=$(mktemp -d /var/tmp/fleet-jobs-XXXXXX)
    mkdir "$top/root"
    tar -C / --one-file-system --exclude='./var/tmp/fleet-jobs-*' --xattrs -cf - . |
        tar -C "$top/root" --numeric-owner --xattrs --xattrs-include='*' -xpf -
    echo "$top"
}

# enter_root ROOT NETWORK COMMAND...: run a command in a copied root, in new namespaces. NETWORK: own or
# shared.
#
# unshare(2) maps no users within a chroot, so pivot_root makes the copy the root of the mount
# namespace; pivot_root requires a mount. Process 1 stays a shell of root: a process that changes
# its user loses its parent-death signal, but the kernel kills all processes with process 1.
enter_root() {
    root=$1
    own=$2
    shift 2
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    mkdir -p run/systemd/resolve
    cat /etc/resolv.conf >run/systemd/resolve/stub-resolv.conf
    if test "$own" = own; then
        ip link set lo up
        mount -t cgroup2 cgroup sys/fs/cgroup
    fi
    pivot_root . mnt
    exec /usr/sbin/chroot . /bin/sh -euc 'umount -l /mnt; "$@"; exit' sh "$@"
}

# Run a command in a root without mmdebstrap, with mmdebstrap: an image whose only executor is
# incus has none, and its jobs need a tarball.
lend_mmdebstrap() {
    export DEBIAN_FRONTEND=noninteractive
    list() { dpkg-query --show --showformat='${Package}\n'; }
    before=$(list)
    apt-get -q -o Acquire::Check-Valid-Until=false update </dev/null >&2
    apt-get -qy --no-install-recommends install arch-test mmdebstrap uidmap </dev/null >&2
    "$@"
    list | grep -vxF "$before" | xargs -r apt-get -qy purge >&2
}

# Run a command with incus. No systemd runs in the root, so start the daemon with the command of
# its unit.
with_incus() {
    mkdir -p /run/incus /var/lib/incus /var/log/incus
    /usr/libexec/incus/incusd --group incus-admin >/var/log/incus/incusd.log 2>&1 </dev/null &
    incus admin waitready --timeout 120 </dev/null >&2
    /usr/local/sbin/debusine-worker-incus </dev/null >&2
    "$@"
}

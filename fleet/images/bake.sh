#!/bin/sh
# Work on the root file system of an image, as root of new namespaces (started by disk.py).
#
#     bake.sh base COMMAND...             run mmdebstrap
#     bake.sh role BASE ROOT COMMAND...   unpack BASE, run the role on it, and pack it as ROOT
#     bake.sh disk ROOT RAW               write the disk RAW, and print the list of packages
#     bake.sh clean ROOT CLEANED          pack ROOT as CLEANED, as it is on the disk
#
# BASE, ROOT and CLEANED are tar archives. The variable work names a folder for temporary files.
# The kernel removes the mounts when the script ends.
set -eu
umask 022
root=$work/root
shared=${0%/*}/root.sh
. "$shared"
resolver=run/systemd/resolve/stub-resolv.conf

main() {
    step=$1
    shift
    case $step in
    base) "$@" ;;
    role) run_role "$@" ;;
    disk) write_disk "$@" ;;
    clean) pack_cleaned "$@" ;;
    esac
}

run_role() {
    packed=$2
    unpack "$1"
    shift 2
    furnish
    "$@"
    mkdir -p "$root${listed%/*}"
    chroot "$root" sh -euc "$(cat "$shared")
list_packages" >"$root$listed"
    unfurnish
    pack "$packed"
}

write_disk() {
    raw=$2
    unpack "$1"
    clean
    cat "$root$listed"
    # Ext4 needs 4 KiB per file and folder, and some percent for its own tables.
    kib=$(($(du -sk "$root" | cut -f 1) + 4 * $(find "$root" | wc -l)))
    root_mib=$((kib * 105 / 100 / 1024 + 1 + FREE_MIB))
    truncate --size "$((1 + BOOT_MIB + root_mib + 1))M" "$raw"
    sfdisk --quiet "$raw" <<END
label: gpt
label-id: $DISK_ID
start=1MiB, size=${BOOT_MIB}MiB, type=U, name=boot, uuid=$BOOT_ID${BIOS_BOOT:+, attrs="LegacyBIOSBootable"}
size=${root_mib}MiB, type=$ROOT_TYPE, name=root, uuid=$ROOT_PARTITION_ID
END
    mke2fs -q -F -t ext4 -L root -U "$ROOT_ID" -m 1 -d "$root" \
        -E "hash_seed=$ROOT_ID,offset=$(((1 + BOOT_MIB) << 20))" "$raw" "${root_mib}M"
    write_boot_partition
}

pack_cleaned() {
    unpack "$1"
    clean
    pack "$2"
}

# The boot partition has kernel, initrd and the boot loader of UEFI; on amd64 also that of BIOS.
write_boot_partition() {
    boot=$work/boot
    newest=$(find "$root/boot" -name 'vmlinu[xz]-*' -printf '%T@ %f\n' | sort -n | tail -n 1)
    test -n "$newest" || fail "the root has no kernel in /boot"
    kernel=${newest#* }
    initrd=initrd.img-${kernel#*-}
    test -e "$root/boot/$initrd" || fail "the root has no $initrd in /boot"
    options="root=UUID=$ROOT_ID rw console=tty0 console=$CONSOLE"
    mkdir -p "$boot/EFI/BOOT" "$boot/loader/entries"
    loader=$root/usr/lib/systemd/boot/efi/systemd-boot$EFI.efi
    cp "$loader" "$boot/EFI/BOOT/BOOT$(echo "$EFI" | tr a-z A-Z).EFI"
    cp "$root/boot/$kernel" "$boot/vmlinuz"
    cp "$root/boot/$initrd" "$boot/initrd.img"
    printf 'default fleet.conf\ntimeout 0\n' >"$boot/loader/loader.conf"
    printf 'title fleet\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$options" \
        >"$boot/loader/entries/fleet.conf"
    if test -n "$BIOS_BOOT"; then
        mkdir "$boot/syslinux"
        {
            printf 'SERIAL 0\nDEFAULT fleet\nLABEL fleet\nLINUX /vmlinuz\nINITRD /initrd.img\n'
            printf 'APPEND %s\n' "$options"
        } >"$boot/syslinux/syslinux.cfg"
    fi
    find "$boot" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    at=$((1 << 20))
    mkfs.vfat -F 32 -n BOOT -i "$BOOT_NUMBER" --invariant -s 1 -h $((at / 512)) \
        --offset $((at / 512)) "$raw" $((BOOT_MIB * 1024)) >&2
    mcopy -s -m -i "$raw@@$at" "$boot"/* ::/
    if test -n "$BIOS_BOOT"; then
        syslinux --install --offset $at --directory /syslinux "$raw"
        # The 440 bytes before the disk's signature are for the boot code of BIOS.
        dd if="$BIOS_BOOT" of="$raw" bs=440 count=1 conv=notrunc status=none
    fi
    rm -r "$boot"
}

# The kernel makes the devices at boot.
unpack() {
    rm -rf "$root"
    mkdir "$root"
    tar --extract --numeric-owner --xattrs '--xattrs-include=*' '--exclude=./dev/*' \
        --directory "$root" --file "$1"
}

pack() {
    tar --create --sort=name --numeric-owner --xattrs '--xattrs-include=*' \
        '--exclude=./var/cache/apt/archives/*.deb' --directory "$root" --file "$1" .
}

# Let programs run in the root: devices, /proc and name servers.
furnish() {
    mount -t tmpfs tmpfs "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    mount -t proc proc "$root/proc"
    for each in null zero full random urandom tty; do
        : >"$root/dev/$each"
        mount --bind "/dev/$each" "$root/dev/$each"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    mkdir -p "$root/${resolver%/*}"
    cp /etc/resolv.conf "$root/$resolver"
    link_resolver
}

unfurnish() {
    for each in dev run proc; do
        umount --recursive --lazy "$root/$each"
    done
}

# Remove traces of the build, and files that differ in every build; name the root file system.
clean() {
    (
        cd "$root"
        forget
        for each in dev run tmp var/tmp var/cache/apt; do
            test ! -d $each || find $each -mindepth 1 -delete
        done
        rm -rf etc/apt/apt.conf.d/99mmdebstrap etc/.pwd.lock etc/*- var/lib/dpkg/*-old
        rm -rf var/cache/debconf/*-old var/cache/ldconfig/aux-cache
        rm -rf var/log/btmp var/log/wtmp var/log/lastlog
        {
            echo "UUID=$ROOT_ID / ext4 errors=remount-ro 0 1"
            test ! -e etc/fstab || sed -e '/^#/d' -e '/^UUID=/d' etc/fstab
        } >"$work/fstab"
        cp "$work/fstab" etc/fstab
    )
    link_resolver
}

link_resolver() {
    ln -sf "../$resolver" "$root/etc/resolv.conf"
}

fail() {
    echo "E: $1, so no machine can boot it" >&2
    exit 1
}

main "$@"

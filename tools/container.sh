#!/bin/sh
# Builds the image of fleet with a wheel in it, as an OCI archive: container.sh BASE WHEEL ARCHIVE
# BASE names what it stands on by digest: NAME@sha256:…. Needs buildah and root.
set -eu
usage='usage: container.sh BASE WHEEL ARCHIVE'
base=${1:?$usage} wheel=$(realpath "${2:?$usage}") archive=$(realpath -m "${3:?$usage}")
cd "$(dirname "$0")/.."

# What Containerfile reads is copied: a wheel may lie anywhere.
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/tools" "$context/requirements"
cp -R tools/pulumi tools/pulumi-resource-hcloud "$context/tools"
cp requirements/run.lock "$context/requirements"
cp "$wheel" "$context"

build() {
    buildah build --isolation chroot --layers --force-rm --file Containerfile \
        --build-arg "BASE=$base" --build-arg "WHEEL=${wheel##*/}" \
        ${GOPROXY:+--build-arg "GOPROXY=$GOPROXY"} \
        ${PIP_INDEX_URL:+--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL"} \
        ${SSL_CERT_FILE:+--build-arg "SSL_CERT_FILE=/run/ca.pem" --volume "$SSL_CERT_FILE:/run/ca.pem:ro"} \
        "$@" "$context"
}

# Each stage has a name, by which its layers are kept for the next build; all older ones go.
build --target engine --tag fleet-engine
build --target wheel --tag fleet-wheel
build --tag fleet
buildah rmi --prune
rm -f "$archive"
buildah push fleet "oci-archive:$archive:fleet"

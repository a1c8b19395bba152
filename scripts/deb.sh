#!/usr/bin/env bash
# Makes build/tandem_VERSION_amd64.deb: the program with the bundled model under /usr/lib/tandem, a systemd unit, its
# settings in /etc/tandem, and the CUDA backend if it is built. Debian's own libraries are dependencies.
#
#   scripts/deb.sh [FOLDER]      default build; uses build/release and, if there, build/cuda
#   TANDEM_DEB_COMPRESSION=none  quicker, larger
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build}
release=${TANDEM_RELEASE_DIR:-build/release}
cuda=${TANDEM_CUDA_DIR:-build/cuda}
version=$("$release/tandem" --version | awk '{print $2}')
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

umask 022
home=$tree/usr/lib/tandem
doc=$tree/usr/share/doc/tandem
install -D -s -m 755 "$release/tandem" "$home/tandem"
mkdir -p "$home/models" "$tree/usr/bin" "$doc"
cp -r models/tandem-tiny "$home/models/"
ln -s ../lib/tandem/tandem "$tree/usr/bin/tandem"
[ -f "$cuda/libtandem_cuda.so" ] && install -s -m 644 "$cuda/libtandem_cuda.so" "$home/libtandem_cuda.so"
install -D -m 644 packaging/tandem.service "$tree/lib/systemd/system/tandem.service"
install -D -m 644 packaging/tandem.toml "$tree/etc/tandem/tandem.toml"
install -m 644 docs/install.md docs/api.md "$doc/"
install -m 644 LICENSE "$doc/copyright"

# The packages of the libraries that the program names itself; theirs are their packages' affair.
packages=$(objdump -p "$home/tandem" | awk '$1 == "NEEDED" {print $2}' | while read -r library; do
  file=$(ldd "$release/tandem" | awk -v name="$library" '$1 == name {print $3}')
  [ -n "$file" ] || continue
  { dpkg -S "$file" 2>/dev/null || dpkg -S "$(realpath "$file")" 2>/dev/null || dpkg -S "/usr$file" 2>/dev/null ||
    { echo "deb: no package owns $file" >&2; exit 1; }; } | head -n 1 | cut -d: -f1
done | sort -u)
depends=
for package in $packages; do
  lowest=$(dpkg-query -W -f='${Version}' "$package" | sed 's/^[0-9]*://; s/[-+~].*//')
  depends="${depends:+$depends, }$package (>= $lowest)"
done

mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: tandem
Version: $version
Architecture: amd64
Section: science
Priority: optional
Maintainer: The Tandem project <tandem@localhost>
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: $depends
Description: inference server for the dense Qwen3.5 hybrid models
 Serves an OpenAI-compatible API and a chat page, on the CPU or on one or several GPUs of a host. A small
 model is included; 'systemctl start tandem' serves it on port 8000 of this machine.
END
echo /etc/tandem/tandem.toml >"$tree/DEBIAN/conffiles"
# What `systemctl enable` links is remembered by Debian's helper at installation, since the unit that says so has gone
# when a purge is to unlink it. DPKG_ROOT: dpkg works on another root than this machine's.
cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  deb-systemd-helper update-state tandem.service
  if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ -n "$2" ]; then systemctl try-restart tandem.service; fi
  fi
fi
END
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then systemctl stop tandem.service; fi
END
cat >"$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ] && command -v deb-systemd-helper >/dev/null; then deb-systemd-helper purge tandem.service; fi
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
END
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"

mkdir -p "$out"
file=$out/tandem_${version}_amd64.deb
dpkg-deb --root-owner-group -Z"${TANDEM_DEB_COMPRESSION:-xz}" --build "$tree" "$file" >/dev/null
echo "deb: $(du -k "$file" | cut -f1) KiB in $file"

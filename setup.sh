#!/usr/bin/env bash
# Makes .venv with the locked dependencies and finds or installs a Chromium. May be run again at no cost.
# PYTHON=python3.12 chooses the Python (3.11 to 3.14), else it is the distribution's.
# With --tests also Chromium's headless shell, which saves the tests processor time.
# With --peers that, and what the tests compare with: .venv-peers* (other people's readers and servers, and Ray), .venv-browser-use, Git,
# curl, wget, Node and MCP's own clients for it (tests/interop/clients/node_modules).
set -euo pipefail
cd "$(dirname "$0")"

say() { printf 'setup: %s\n' "$*" >&2; }
stop() { printf 'setup: error: %s\n' "$*" >&2; exit 4; }

quietly() { # what a command prints is shown only if it fails
  local log; log=$(mktemp)
  "$@" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; return 1; }
  rm -f "$log"
}

sudo_() { if [ "$(id -u)" = 0 ]; then "$@"; else command -v sudo >/dev/null && sudo "$@"; fi; }

install_packages() { # Debian's or Ubuntu's own packages
  command -v apt-get >/dev/null || return 1
  export DEBIAN_FRONTEND=noninteractive
  quietly sudo_ apt-get update -qq && quietly sudo_ apt-get install -y -qq --no-install-recommends "$@"
}

has_pip() { "$1" -m pip --version >/dev/null 2>&1; }
usable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; }
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

find_python() { # the one asked for, else that of the environment already made, else the distribution's, else the newest on the PATH
  local name
  if [ -z "${PYTHON:-}" ] && has_pip .venv/bin/python && usable .venv/bin/python; then echo .venv/bin/python; return; fi
  # compiled with profiles, it takes an eighth less processor time than pyenv's
  if [ -z "${PYTHON:-}" ] && usable /usr/bin/python3 && /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then echo /usr/bin/python3; return; fi
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    if command -v "$name" >/dev/null && usable "$name"; then echo "$name"; return; fi
  done
  return 1
}

if [ -n "${PYTHON:-}" ]; then
  python=$(find_python) || stop "PYTHON=$PYTHON is not a Python 3.11 to 3.14"
  if [ -e .venv ] && [ "$(version .venv/bin/python)" != "$(version "$python")" ]; then
    say "removing .venv, .venv-peers* and .venv-browser-use, which another Python made"
    rm -rf .venv .venv-peers .venv-peers-fetch .venv-browser-use
  fi
else
  python=$(find_python) || { say "installing Python"; install_packages python3 python3-venv || true; python=$(find_python) || stop "Python 3.11 or later is needed; install it and run this again"; }
fi

stamp=.venv/stillweb-setup
want=$(cat requirements.lock pyproject.toml setup.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$want" ]; then
  if ! has_pip .venv/bin/python; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv >/dev/null 2>&1 || { rm -rf .venv; say "installing the venv module"; install_packages python3-venv || stop "'$python -m venv' fails; install the package python3-venv"; "$python" -m venv .venv; }
  fi
  say "installing $(grep -c == requirements.lock) locked packages: one to five minutes, without a word meanwhile"
  quietly .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
  quietly .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
  echo "$want" > "$stamp"
fi

# Once, as pip does with the others: on a disk that is full Python 3.11 leaves a module that it compiles later cut, for good.
.venv/bin/python -m compileall -q stillweb snapshots proxy harness

# Playwright's own Node wants a library that a bare system lacks.
if ! .venv/bin/python -m playwright --version >/dev/null 2>&1; then
  say "installing libatomic1 for Playwright"
  install_packages libatomic1 || true
  .venv/bin/python -m playwright --version >/dev/null || stop "Playwright's driver does not start; see the line above"
fi

# A Chromium: on the PATH, else Playwright's own download, else the distribution's package.
if ! .venv/bin/python -c 'import sys; from stillweb.proxy.browser.browser import find_browser; find_browser()' 2>/dev/null; then
  say "no Chromium found; trying Playwright's download"
  if ! timeout 180 .venv/bin/python -m playwright install chromium >/dev/null 2>&1; then
    say "Playwright's download is not to be had here; installing the distribution's package"
    install_packages chromium fonts-liberation || stop "no Chromium: install one (Debian: apt-get install chromium) or set STILLWEB_BROWSER to its path"
  fi
  .venv/bin/python -c 'from stillweb.proxy.browser.browser import find_browser; find_browser()' || stop "a Chromium was installed but can't be found; set STILLWEB_BROWSER to its path"
fi
if [ -n "${1:-}" ] && ! command -v chromium-headless-shell >/dev/null; then
  { dpkg -s chromium >/dev/null 2>&1 && install_packages chromium-headless-shell; } || say "no chromium-headless-shell here: the tests use Chromium and take longer"
fi
if [ "${1:-}" = --peers ]; then
  missing=()
  for pair in git:git curl:curl wget:wget node:nodejs npm:npm openssl:openssl ps:procps ip:iproute2; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing what the tests record and replay with: ${missing[*]}"
    install_packages "${missing[@]}" || stop "the tests need ${missing[*]}; install them and run this again"
  fi
  for pair in peers:tests/peers.lock peers-fetch:tests/peers-fetch.lock browser-use:examples/browser-use/requirements.lock; do
    venv=.venv-${pair%%:*} lock=${pair#*:}
    want=$(sha256sum < "$lock")
    if [ "$(cat "$venv/stillweb-setup" 2>/dev/null || true)" != "$want" ]; then
      say "making $venv, for what is compared or recorded of other programs"
      "$python" -m venv "$venv"
      quietly "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$lock"
      echo "$want" > "$venv/stillweb-setup"
    fi
  done
  want=$(sha256sum < tests/ray.lock)
  if [ "$(cat .venv-peers/ray/stillweb-setup 2>/dev/null || true)" != "$want" ]; then
    say "installing Ray beside .venv (80 MB)"
    rm -rf .venv-peers/ray
    quietly "$python" -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tests/ray.lock --target .venv-peers/ray
    echo "$want" > .venv-peers/ray/stillweb-setup
  fi
  want=$(sha256sum < tests/wheels.lock)
  if [ "$(cat .venv-peers/wheels/stillweb-setup 2>/dev/null || true)" != "$want" ]; then
    quietly "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tests/wheels.lock -d .venv-peers/wheels
    echo "$want" > .venv-peers/wheels/stillweb-setup
  fi
  clients=tests/interop/clients
  want=$(cat "$clients/package.json" "$clients/package-lock.json" | sha256sum)
  if [ "$(cat "$clients/node_modules/stillweb-setup" 2>/dev/null || true)" != "$want" ]; then
    say "installing the programs for Node that the tests let speak"
    quietly npm ci --prefix "$clients" --ignore-scripts --omit=optional --no-audit --no-fund
    echo "$want" > "$clients/node_modules/stillweb-setup"
  fi
fi
say "ready"

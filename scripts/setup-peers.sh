#!/bin/sh
# Get what some tests need besides Python: a browser, nginx, node and JavaScript packages. Whatever is missing is
# installed where that is possible (root on Debian); elsewhere one line says which tests will be skipped.
# In CI (CI=true) a missing peer is an error, so that no test is skipped unseen. SSE_PROXY_PEERS=no installs nothing.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin" # where nginx is, and no user's PATH has it

say() {
    printf 'peers: %s\n' "$*"
}

wanted() {
    [ "${SSE_PROXY_PEERS:-yes}" != no ]
}

have() {
    command -v "$1" >/dev/null 2>&1
}

missing() {
    say "no $1: the $2 tests will be skipped ($3)"
    incomplete=yes
}

log=$(mktemp)
policy=
clean_up() {
    rm -f "$log"
    [ -z "$policy" ] || rm -f "$policy"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

install_debian() {
    say "installing$1 with apt-get"
    # Debian starts a server it installs; nothing here wants a running nginx.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    # shellcheck disable=SC2086 # several names
    {
        timeout 300 apt-get update -qq -o Acquire::Retries=3
        DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -qq -y --no-install-recommends \
            -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 $1
    } >"$log" 2>&1 </dev/null || {
        tail -n 20 "$log" >&2
        say "apt-get could not install$1 (see above)"
    }
    [ -z "$policy" ] || rm -f "$policy"
    policy=
}

incomplete=no
packages=
have chromium || packages="$packages chromium"
have nginx || packages="$packages nginx"
have node || packages="$packages nodejs"
have npm || packages="$packages npm"
# Debian only: elsewhere these names may be other things (Ubuntu's chromium is a snap).
if [ -n "$packages" ] && wanted && [ "$(id -u)" = 0 ] && have apt-get && grep -qx 'ID=debian' /etc/os-release; then
    install_debian "$packages"
fi

have chromium || missing chromium browser "as root on Debian: apt-get install chromium"
have nginx || missing nginx nginx "as root on Debian: apt-get install nginx"
if ! have node; then
    missing node JavaScript "install Node.js 18 or newer"
elif [ -f tests/js/package.json ]; then
    stamp=tests/js/node_modules/.installed
    state=$(cksum <tests/js/package.json)
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$state" ]; then
        if ! have npm; then
            missing npm "JavaScript reader" "install npm"
        elif ! wanted; then
            missing "tests/js/node_modules" "JavaScript reader" "SSE_PROXY_PEERS=no"
        else
            say "installing the JavaScript readers with npm"
            [ -w "${HOME:-/nonexistent}" ] || export npm_config_cache="$PWD/tests/js/node_modules/.npm"
            if (cd tests/js && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error) \
                >"$log" 2>&1 </dev/null; then
                printf '%s\n' "$state" >"$stamp"
            else
                tail -n 20 "$log" >&2
                missing "tests/js/node_modules" "JavaScript reader" "npm install failed, see above"
            fi
        fi
    fi
fi

if [ "$incomplete" = yes ] && [ "${CI:-}" = true ]; then
    say "in CI every peer must be there" >&2
    exit 1
fi

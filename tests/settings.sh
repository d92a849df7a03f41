#!/bin/sh
# Runs the suite where it was never run: from a copy in a long path with spaces that cannot be written, in the
# locale C and another time zone, in random order, as a user who is not root and whose home cannot be written.
#
#   tests/settings.sh PYTHON [arguments of pytest]
#
# PYTHON must be one that other users may run. Without root the user stays, and the rest holds.
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
data=${UNSKEW_DATA:-$here/../shared/data}
place=$(mktemp -d "${TMPDIR:-/tmp}/unskew-settings-XXXXXX")
trap 'chmod -R u+w "$place"; rm -rf "$place"' EXIT

copy="$place/a folder with spaces/and a name that is so long that a path in it is longer than most people's paths"
copy="$copy/unskew (copy)"
mkdir -p "$copy" "$place/home" "$place/other tmp"
(cd "$here" && git ls-files -z | tar --null --files-from=- --create --file=-) | (cd "$copy" && tar --extract --file=-)
chmod -R a-w,a+rX "$copy" "$place/home"
chmod 755 "$place"
chmod 1777 "$place/other tmp"

as=""
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups --"
fi
cd "$copy"
# shellcheck disable=SC2086 # a list of words
exec_in() {
    $as env -i PATH=/usr/bin:/bin LC_ALL=C TZ=Pacific/Auckland HOME="$place/home" TMPDIR="$place/other tmp" \
        PYTHONPATH="$copy/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
        OMP_WAIT_POLICY=passive UNSKEW_DATA="$data" "$@"
}
exec_in "$python" -m pytest -p no:cacheprovider "$@"

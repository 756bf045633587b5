#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# merge.sh VERSION PAGE.in [PROGRAM|-] [EXAMPLE.c] - the manual page on standard output: @VERSION@,
# the line @OPTIONS@ from what PROGRAM --help=man says, the line @EXAMPLE@ from the C file.
set -eu
version=$1 page=$2 program=${3:--} example=${4-}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
: >"$parts/options"
: >"$parts/example"
[ "$program" = - ] || "./$program" --help=man >"$parts/options"
# The first line of the file is for us; a backslash, and a dot or quote that begins a line, would be
# taken for roff.
[ -z "$example" ] || sed -e 1d -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" "$example" >"$parts/example"
sed -e "s/@VERSION@/$version/g" \
	-e "/^@OPTIONS@\$/{r $parts/options" -e 'd}' \
	-e "/^@EXAMPLE@\$/{r $parts/example" -e 'd}' "$page"

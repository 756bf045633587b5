#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All bytes that a reader gets belong to the value that was put: threads of one process, over memory and TCP.
. "${top_srcdir:-.}/tests/lib/functions.sh"
hunter=$top_builddir/tests/integ/client_hunter
timeout 120 "$hunter" self 4 6 0 1
timeout 120 "$hunter" self 3 6 0 1 tcp

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Our nodes and upstream's nodes, release 0.3.12.post1, read and write each other's memory.
. "${top_srcdir:-.}/tests/integ/interop_lib.sh"
interop 0.3.12.post1

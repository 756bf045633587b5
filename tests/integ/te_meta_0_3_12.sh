#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Our engine and upstream's, release 0.3.12.post1, find each other by HTTP and etcd metadata servers.
. "${top_srcdir:-.}/tests/integ/te_meta_upstream.sh" 0.3.12.post1

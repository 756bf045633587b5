#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The SSD tier through the Python package.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
. "$top_srcdir/tests/lib/ssd.sh"
python_package
start_master --enable_offload --offload_on_evict --promotion_on_hit --promotion_admission_threshold=1 \
	--default_kv_lease_ttl=0
timeout 250 "$PYTHON" "$top_srcdir/tests/python/offload.py" "$MASTER" "$ssd"

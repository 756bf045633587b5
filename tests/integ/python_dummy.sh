#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup_dummy(): a Python process puts and gets through mooncake_client, with memory of its pool and
# with other memory.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=500
lane=''
free_port lane
spawn node "$top_builddir/node/mooncake_client" --port="$lane" --host=127.0.0.1 --master_server_address="$MASTER" \
	--global_segment_size=128MB
daemon=127.0.0.1:$lane
# the daemon is ready when a client can connect
up() {
	"$PYTHON" -c "import sys, mooncake.store as ms; sys.exit(ms.MooncakeDistributedStore().setup_dummy(0, 1 << 20, '$daemon') != 0)"
}
wait_for 30 up 2>"$tmp/up.log"
timeout 100 "$PYTHON" "$top_srcdir/tests/python/dummy.py" "$MASTER" "$daemon"

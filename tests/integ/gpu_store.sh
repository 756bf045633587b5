#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python store with memory of the fake GPU: into its own segment, over TCP, and through a daemon.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=100
# Only the processes with a GPU find the driver.
gpu() {
	env LD_LIBRARY_PATH="$top_builddir/tests/lib/.libs" timeout 200 "$@"
}
gpu "$PYTHON" "$top_srcdir/tests/python/gpu.py" "$MASTER"
gpu env MC_FORCE_TCP=1 "$PYTHON" "$top_srcdir/tests/python/gpu.py" "$MASTER"
lane=''
free_port lane
spawn node "$top_builddir/node/mooncake_client" --port="$lane" --host=127.0.0.1 --master_server_address="$MASTER" \
	--global_segment_size=128MB
up() {
	"$PYTHON" -c "import sys, mooncake.store as ms; sys.exit(ms.MooncakeDistributedStore().setup_dummy(0, 1 << 20, '127.0.0.1:$lane') != 0)"
}
wait_for 30 up 2>"$tmp/up.log"
gpu "$PYTHON" "$top_srcdir/tests/python/gpu.py" "$MASTER" "127.0.0.1:$lane"

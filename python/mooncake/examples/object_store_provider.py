# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.examples.object_store_provider: a process that only contributes memory to a pool.

Variables, as in upstream's distributed_object_store_provider.py: LOCAL_HOSTNAME (127.0.0.1), METADATA_ADDR, PROTOCOL (tcp),
DEVICE_NAME, MASTER_SERVER (127.0.0.1:50051), and GLOBAL_SEGMENT_SIZE ("3200mb").  It runs until SIGINT or SIGTERM."""

import os
import signal
import sys

from mooncake.store import MooncakeDistributedStore


def main():
    wanted = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    store = MooncakeDistributedStore()
    code = store.setup({"local_hostname": os.getenv("LOCAL_HOSTNAME", "127.0.0.1"),
                        "metadata_server": os.getenv("METADATA_ADDR", "P2PHANDSHAKE"),
                        "global_segment_size": os.getenv("GLOBAL_SEGMENT_SIZE", "3200mb"),
                        "protocol": os.getenv("PROTOCOL", "tcp"), "rdma_devices": os.getenv("DEVICE_NAME", ""),
                        "master_server_addr": os.getenv("MASTER_SERVER", "127.0.0.1:50051")})
    if code:
        return f"the store cannot be set up: error {code}"
    print(f"contributing memory as {store.get_hostname()}, until SIGTERM", flush=True)
    signal.sigwait(wanted)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

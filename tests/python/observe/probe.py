# SPDX-License-Identifier: Apache-2.0
"""probe_key(), ExistOptions, the per-key lists of ReplicateConfig, and keys of setup()."""

import sys
import time

from cases import case, finish, says
from mooncake.store import ExistOptions, MooncakeDistributedStore, ReplicateConfig

LEASE_S = 0.5
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0


def leased(name, look):
    """Record which of four objects cannot be removed after look()."""
    keys = ["pa", "pb", "pc", "pd"]
    for key in keys:
        store.put(key, b"1")
    time.sleep(LEASE_S * 1.2)
    case(name, look)
    case(f"{name}: leased", lambda: [key for key in keys if store.remove(key) == -706])
    time.sleep(LEASE_S * 1.2)
    for key in keys:
        store.remove(key)


def probes():
    store.put("a", b"1")
    case("one", lambda: [store.probe_key("a"), store.probe_key("gone"), store.probe_key("")])
    case("many", lambda: store.batch_probe_key(["a", "gone", "a", ""]))
    case("none of them", lambda: store.batch_probe_key([]))
    case("keywords", lambda: store.batch_probe_key(keys=["a"], policy="LastHitOnly", candidate_size=1))
    for policy in ("None", "lasthitonly", ""):
        says(f"policy {policy!r}", lambda: store.batch_probe_key(["a"], policy), "Unknown batch_probe_key policy")
    for size in (0, 3, 100):
        case(f"candidates of {size}", lambda: store.batch_probe_key(["a", "a", "gone", "a"], "LastHitOnly", size))
    case("candidates of 0, policy none", lambda: store.batch_probe_key(["a", "gone"], "none", 0))
    case("candidates of -1", lambda: store.batch_probe_key(["a"], "LastHitOnly", -1))
    leased("probe", lambda: [store.probe_key("pa"), store.batch_probe_key(["pb", "pc"])])
    leased("last hit", lambda: store.batch_probe_key(["pa", "pb", "gone", "pc"], "LastHitOnly"))
    leased("last hit of 2", lambda: store.batch_probe_key(["pa", "pb", "gone", "pc"], "LastHitOnly", 2))
    leased("last hit behind a miss", lambda: store.batch_probe_key(["gone", "pb", "pc", "gone2"], "LastHitOnly"))
    leased("all", lambda: store.batch_probe_key(["pa", "pb", "pc", "pd"], "LastHitOnly", 4))


def exist_options():
    options = ExistOptions()
    case("default", lambda: options.prefetch_to_memory)
    options.prefetch_to_memory = True
    case("is_exist", lambda: [store.is_exist("a", options), store.is_exist("gone", options=options)])
    case("batch_is_exist", lambda: store.batch_is_exist(["a", "gone"], options))
    for value in (None, True):
        case(f"is_exist with {value}", lambda: store.is_exist("a", value))
        case(f"batch_is_exist with {value}", lambda: store.batch_is_exist(["a"], value))
    case("constructor", lambda: ExistOptions(True))
    case("text", lambda: setattr(options, "prefetch_to_memory", "x"))
    leased("is_exist leases", lambda: store.is_exist("pa", options))


def configs():
    config = ReplicateConfig()
    for field in ("per_key_preferred_hca_names", "residency_affinity_ids", "preferred_hca_names", "session_ids"):
        case(field, lambda: getattr(config, field))
        for value in (["a"], [["a"], ["b"]], [], "x", [1], None):
            def put():
                setattr(config, field, value)
                return getattr(config, field)

            case(f"{field} = {value!r}", put)
        for value in (["a"], ["a", "b"]):
            each = ReplicateConfig()
            setattr(each, field, [[v] for v in value] if field.startswith("per_key") else value)
            case(f"put with {len(value)} {field}", lambda: store.put("c", b"1", each))
            case(f"put_batch with {len(value)} {field}", lambda: store.put_batch(["d", "e"], [b"1", b"1"], each))
            store.remove_all(True)
    text = ReplicateConfig()
    text.group_ids, text.residency_affinity_ids = ["g"], ["i", "j"]
    case("as a text", lambda: str(text))


def setups():
    base = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": sys.argv[1],
            "global_segment_size": 16 << 20}
    for given in ({"enable_ssd_prefetch": True}, {"ssd_prefetch_cooldown_sec": 1, "ssd_prefetch_dedup_ttl_sec": 0},
                  {"ssd_prefetch_cooldown_sec": -1}, {"ssd_prefetch_dedup_ttl_sec": "abc"}, {"enable_ssd_prefetch": "maybe"},
                  {"enable_egm_store_pool": True}, {"enable_egm_store_pool": "maybe"}, {"egm_numa_nodes": "0,1"},
                  {"enable_embedded_master": True}):
        s = MooncakeDistributedStore()
        case(f"setup {given}", lambda: s.setup({**base, **given}))
        s.close()
    s = MooncakeDistributedStore()
    case("setup: a port is chosen", lambda: (
        s.setup(base), 12300 <= int(s.get_hostname().rpartition(":")[2]) <= 14300)[1])
    s.close()
    case("setup: a port is given", lambda: (s.setup({**base, "local_hostname": "127.0.0.1:17411"}), s.get_hostname()))
    s.close()


probes()
exist_options()
configs()
store.close()
setups()
finish({
    "constructor": ("ExistOptions", "it takes the option as an argument too"),
    "is_exist with None": (1, "None stands for the default, as everywhere"),
    "batch_is_exist with None": ([1], "None stands for the default, as everywhere"),
    "setup {'enable_ssd_prefetch': 'maybe'}": (-600, "a value that is neither true nor false is an error"),
    "setup {'enable_embedded_master': True}": (-600, "there is no master in the process: the reason is in the log"),
})

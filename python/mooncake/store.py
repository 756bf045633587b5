# SPDX-License-Identifier: Apache-2.0
"""The object store: MooncakeDistributedStore and what goes with it.

Results are upstream's: 0 or a count, or a negative number (-704 there is no such object, -200 no space,
-706 leased, -600 wrong parameter or not set up, -800 transfer, -900 master not reachable, -901 deadline).
Wrong types are TypeErrors; nothing else is raised.  Every call gives the GIL back while it waits, may
be made from any thread, and ends by its deadline (30 s)."""

import atexit as _atexit
import weakref as _weakref

from mooncake import _setup
from mooncake._api.buffers import BufferLease, BufferLeaseView, BufferPool
from mooncake._api.replicas import Descriptor, DiskDescriptor, MemoryDescriptor, ReplicaDescriptor, Replicas as _Replicas
from mooncake._api.segments import Segments as _Segments
from mooncake._api.sessions import Sessions as _Sessions
from mooncake._api.parallel import Parallel as _Parallel, ParallelAxis, ReadTarget, TensorParallelism
from mooncake._api.tensors import (Tensors as _Tensors, deserialize as _deserialize_tensor,
                               metadata_size as _tensor_metadata_size, serialize as _serialize_tensor)
from mooncake._api.enums import ObjectDataType, ReplicaStatus, SoftPinAction, TaskStatus, TaskType
from mooncake._api.tasks import QueryTaskResponse, Tasks as _Tasks
from mooncake._store import (BufferHandle, MooncakeHostMemAllocator, ReplicateConfig as _Config, Store as _Store,
                             bind_to_numa_node)

RegisteredBufferPool, RegisteredBufferLease, RegisteredBufferLeaseView = BufferPool, BufferLease, BufferLeaseView

# Members are names of the module too, as upstream's are.
for _enum in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):
    for _member in _enum:
        globals().setdefault(_member.name, _member)

_open_stores = _weakref.WeakSet()


@_atexit.register
def _close_all():
    for store in list(_open_stores):
        store.close()


def _enum_property(name, kind, doc):
    def get(self):
        return kind(getattr(_Config, name).__get__(self))

    def put(self, value):
        if not isinstance(value, kind):
            raise TypeError(f"ReplicateConfig{name.replace('_', '.', 1)} must be {kind.__name__}, "
                            f"not {type(value).__name__}")
        getattr(_Config, name).__set__(self, value.value)

    return property(get, put, doc=doc)


class ReplicateConfig(_Config):
    """How objects are stored.

    replica_num: copies, each on another segment (1).  with_hard_pin: never evict.  soft_pin_action, soft_pin_ttl_ms:
    evict last, for so long (None: the master's default); with_soft_pin is an older name of the action.
    preferred_segment, preferred_segments: names of segments ("host:port") to try first; one that is not there
    is passed over.  group_ids: one for each key of the call, None without groups.  data_type: a label.
    prefer_alloc_in_same_node: of batch_put_from_multi_buffers() only.  nof_replica_num, dfs_replica_num and
    preferred_nof_segments speak of tiers that this store does not have, and change nothing."""

    __slots__ = ()

    soft_pin_action = _enum_property("_soft_pin_action", SoftPinAction, "PRESERVE, ENABLE or DISABLE")
    data_type = _enum_property("_data_type", ObjectDataType, "a label for the kind of object")

    @property
    def with_soft_pin(self):
        """soft_pin_action is ENABLE; the attribute's name until upstream 0.3.11."""
        return self.soft_pin_action is SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, on):
        self.soft_pin_action = SoftPinAction.ENABLE if on else SoftPinAction.PRESERVE

    def __copy__(self):
        made = type(self).__new__(type(self))
        for field in vars(_Config).values():
            if hasattr(field, "__set__"):
                field.__set__(made, field.__get__(self))
        # of a class that was made of this one
        if hasattr(self, "__dict__"):
            made.__dict__.update(self.__dict__)
        return made

    def __str__(self):
        ttl = "default" if self.soft_pin_ttl_ms is None else self.soft_pin_ttl_ms
        return (f"ReplicateConfig: {{ replica_num: {self.replica_num}, nof_replica_num: {self.nof_replica_num}, "
                f"dfs_replica_num: {self.dfs_replica_num}, soft_pin_action: {self.soft_pin_action.name}, "
                f"soft_pin_ttl_ms: {ttl}, with_hard_pin: {int(self.with_hard_pin)}, "
                f"preferred_segments: [{', '.join(self.preferred_segments)}], "
                f"preferred_nof_segments: [{', '.join(self.preferred_nof_segments)}], "
                f"prefer_alloc_in_same_node: {int(self.prefer_alloc_in_same_node)}, "
                f"data_type: {self.data_type.name} }}")


_SETUP_NAMES = ("local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol",
                "rdma_devices", "master_server_addr", "engine", "enable_ssd_offload", "ssd_offload_path", "tenant_id",
                "enable_client_http_server", "client_http_port")
_SETUP_DEFAULTS = {"engine": None, "enable_ssd_offload": False, "ssd_offload_path": "", "tenant_id": "default",
                   "enable_client_http_server": False, "client_http_port": 9300}


def _setup_args(args, kwargs):
    """The arguments of the long form of setup() by name; TypeErrors name what is wrong."""
    if len(args) > len(_SETUP_NAMES):
        raise TypeError(f"setup() takes at most {len(_SETUP_NAMES)} arguments ({len(args)} given)")
    given = dict(zip(_SETUP_NAMES, args))
    for key, value in kwargs.items():
        name = _setup.ALIASES.get(key, key)
        if name not in _SETUP_NAMES:
            raise TypeError(f"setup() got an unexpected keyword argument '{key}'"
                            f"{_setup.nearest(key, _SETUP_NAMES)}")
        if name in given:
            raise TypeError(f"setup() got multiple values for argument '{key}'")
        given[name] = value
    missing = [n for n in _SETUP_NAMES[:7] if n not in given]
    if missing:
        raise TypeError(f"setup() missing required arguments: {', '.join(missing)}")
    for name in ("global_segment_size", "local_buffer_size"):
        value = given[name]
        if isinstance(value, float) or value is None or (isinstance(value, int) and value < 0):
            raise TypeError(f"setup(): {name} must be a size from 0 on, not {value!r}")
    return {**_SETUP_DEFAULTS, **given}


class MooncakeDistributedStore(_Sessions, _Segments, _Tasks, _Replicas, _Tensors, _Parallel, _Store):
    """A connection to a pool, and, when it has a segment, a part of the pool.

    Serves any number of threads.  It closes itself when it goes, and at exit.  After fork() the child must
    make its own: there, calls of the parent's answer as those of a store that is not set up."""

    _config_type = ReplicateConfig
    _base_type = _Store
    _log = _setup.log
    _conf = None

    def close(self):
        self._end_sessions()
        self._close_segments()
        return super().close()

    close.__doc__ = _Store.close.__doc__

    def setup(self, *args, **kwargs):
        """setup(local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int,
        protocol: str, rdma_devices: str, master_server_addr: str, engine=None, enable_ssd_offload: bool = False,
        ssd_offload_path: str = "", tenant_id: str = "default", enable_client_http_server: bool = False,
        client_http_port: int = 9300) -> int
        setup(config: dict) -> int

        Connect to the master, and contribute global_segment_size bytes of memory (0: none) under the name
        local_hostname ("host" or "host:port", where peers reach this process).  The dict has the same names;
        sizes may be texts ("4gb"), values None are defaults.  device_name is rdma_devices, and
        master_server_address is master_server_addr.

        0, -600 for wrong values, -1 when the master cannot be reached (within 5 seconds); the log of
        "mooncake.store" says why.  Called again, it closes first."""
        if (len(args) == 1 and isinstance(args[0], dict) and not kwargs) or (
                not args and set(kwargs) == {"config"} and isinstance(kwargs["config"], dict)):
            config = args[0] if args else kwargs["config"]
            take = lambda: _setup.take_dict(config)
        else:
            values = _setup_args(args, kwargs)
            take = lambda: values
        try:
            conf = _setup.prepare(take())
        except _setup.Bad as e:
            _setup.log.error("setup: %s", e)
            return _setup.INVALID_PARAMS
        return self._connect(conf)

    def _connect(self, conf):
        self._end_sessions()
        self._close_segments()
        code, why = self._open(**conf)
        if code:
            _setup.log.error("setup: %s", why)
            return _setup.INVALID_PARAMS if code == _setup.INVALID_PARAMS else _setup.INTERNAL_ERROR
        self._conf = conf
        _open_stores.add(self)
        return 0

    def init_all(self, protocol, device_name, mount_segment_size):
        """init_all(protocol: str, device_name: str, mount_segment_size: int) -> int

        setup() with the master on 127.0.0.1:50051 and that many bytes of memory."""
        return self.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": protocol,
                           "rdma_devices": device_name, "global_segment_size": mount_segment_size})

    def setup_dummy(self, mem_pool_size, local_buffer_size, server_address):
        """setup_dummy(mem_pool_size: int, local_buffer_size: int, server_address: str) -> int

        Go through the daemon of this host (mooncake_client, mcfs) at server_address ("host:port", "unix:PATH"), which has
        the pool's memory: mem_pool_size bytes shared with it for alloc_from_mem_pool(), local_buffer_size for values that
        lie elsewhere.  0, -600 for wrong values, -1 when there is no daemon."""
        for name, value in (("mem_pool_size", mem_pool_size), ("local_buffer_size", local_buffer_size)):
            if not isinstance(value, int) or value < 0:
                raise TypeError(f"setup_dummy(): {name} must be a size from 0 on, not {value!r}")
        if not isinstance(server_address, str):
            raise TypeError(f"setup_dummy(): server_address must be a str, not {type(server_address).__name__}")
        if server_address in ("", "off", "auto") or "\0" in server_address:
            _setup.log.error('setup_dummy: "%s" is no address of a daemon (host:port, unix:PATH)', server_address)
            return _setup.INVALID_PARAMS
        return self._connect(dict(hostname="127.0.0.1", segment_size=0, master=_setup.DEFAULT_MASTER,
                                  daemon=server_address, daemon_buffer=local_buffer_size, daemon_pool=mem_pool_size))

    # ---- parts of objects ----

    def get_into_ranges(self, buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes):
        """get_into_ranges(buffer_ptrs: list[int], all_keys: list[list[str]], all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]], all_sizes: list[list[list[int]]]) -> list[list[list[int]]]

        Read fragments: of key all_keys[b][k], all_sizes[b][k][f] bytes from all_src_offsets[b][k][f] to address
        buffer_ptrs[b] + all_dst_offsets[b][k][f].  All of them in one request; the result has the same shape: bytes
        read, -704 for a miss, -600 for what lies outside the object; [[[-600]]] when the lists do not match.  TypeError for
        negative numbers, before anything is read."""
        keys, at, offsets, sizes, shape = [], [], [], [], []
        try:
            for base, names, dst, src, size in zip(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes,
                                                   strict=True):
                rows = []
                for name, d, o, n in zip(names, dst, src, size, strict=True):
                    if not len(d) == len(o) == len(n):
                        return [[[_setup.INVALID_PARAMS]]]
                    if base < 0 or any(x < 0 for x in d):
                        raise TypeError("buffer_ptrs and all_dst_offsets must not be negative")
                    keys += [name] * len(n)
                    at += [base + x for x in d]
                    offsets += o
                    sizes += n
                    rows.append(len(n))
                shape.append(rows)
        except ValueError:
            return [[[_setup.INVALID_PARAMS]]]
        got = iter(self._get_ranges(keys, at, offsets, sizes))
        return [[[next(got) for _ in range(n)] for n in rows] for rows in shape]

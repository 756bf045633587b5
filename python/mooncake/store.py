# SPDX-License-Identifier: Apache-2.0
"""The object store: MooncakeDistributedStore and its types.

Results are upstream's: 0 or a count, or a negative code (-704 no such object, -200 no space, -706 leased, -600 wrong
parameter or not set up, -800 transfer, -900 master not reachable, -901 timeout).  Calls raise TypeError for wrong types,
and nothing else.  Every call may be made from any thread, releases the GIL while it waits, and times out after 30 s."""

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
from mooncake._api.enums import ExistOptions, ObjectDataType, ReplicaStatus, SoftPinAction, TaskStatus, TaskType
from mooncake._api.tasks import QueryTaskResponse, Tasks as _Tasks
from mooncake.engram import EngramStore, EngramStoreConfig
from mooncake._store import (BufferHandle, MooncakeHostMemAllocator, RangedReadSnapshot, ReplicateConfig as _Config,
                             Store as _Store, bind_to_numa_node)

RegisteredBufferPool, RegisteredBufferLease, RegisteredBufferLeaseView = BufferPool, BufferLease, BufferLeaseView

# As in upstream, enum members are also names of the module.
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


def _hint_property(name, why):
    """A field that upstream has, and that is checked but has no effect here: the log says so once."""
    def get(self):
        return getattr(_Config, name).__get__(self)

    def put(self, value):
        getattr(_Config, name).__set__(self, value)
        if value:
            _setup.once("ReplicateConfig.%s has no effect: %s", name[1:], why)

    return property(get, put, doc=f"no effect: {why}")


class ReplicateConfig(_Config):
    """Options for storing objects.

    replica_num: copies, each on another segment (1).  with_hard_pin: never evict.  soft_pin_action: ENABLE: evict last,
    for soft_pin_ttl_ms (None: the master's default); with_soft_pin is an older name of the action.  preferred_segment,
    preferred_segments: names of segments ("host:port") to try first; unknown ones are ignored.  group_ids: one for each
    key of the call, or None.  data_type: a label.  prefer_alloc_in_same_node: for batch_put_from_multi_buffers() only.
    dfs_replica_num: 1 needs MOONCAKE_ENABLE_DFS, else a put fails with upstream's code, -1601; the copy in the shared
    directory is made after the put, also with 0.  nof_replica_num: further copies on NoF disks of that many other owners,
    made after the put, fewer when there are fewer; preferred_nof_segments: names of such disks to use first.
    residency_affinity_ids and session_ids (one for each key), preferred_hca_names and per_key_preferred_hca_names:
    checked, and without effect."""

    __slots__ = ()

    soft_pin_action = _enum_property("_soft_pin_action", SoftPinAction, "PRESERVE, ENABLE or DISABLE")
    data_type = _enum_property("_data_type", ObjectDataType, "a label for the kind of object")

    residency_affinity_ids = _hint_property("_residency_affinity_ids", "there are no managed weights")
    session_ids = _hint_property("_session_ids", "events have no session")
    preferred_hca_names = _hint_property("_preferred_hca_names", "the engine chooses the NICs")
    per_key_preferred_hca_names = _hint_property("_per_key_preferred_hca_names", "the engine chooses the NICs")

    @property
    def with_soft_pin(self):
        """Whether soft_pin_action is ENABLE; the attribute's name until upstream 0.3.11."""
        return self.soft_pin_action is SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, on):
        self.soft_pin_action = SoftPinAction.ENABLE if on else SoftPinAction.PRESERVE

    def __copy__(self):
        made = type(self).__new__(type(self))
        for field in vars(_Config).values():
            if hasattr(field, "__set__"):
                field.__set__(made, field.__get__(self))
        # attributes of a subclass
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
                f"data_type: {self.data_type.name}{self._lists()} }}")

    def _lists(self):
        """The lists that are set, for the text."""
        return "".join(f", {name}: [{', '.join(getattr(self, name))}]" for name in ("group_ids", "residency_affinity_ids")
                       if getattr(self, name))


_SETUP_NAMES = ("local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol",
                "rdma_devices", "master_server_addr", "engine", "enable_ssd_offload", "ssd_offload_path", "tenant_id",
                "enable_client_http_server", "client_http_port", "enable_embedded_master", "credential")
_SETUP_DEFAULTS = {"engine": None, "enable_ssd_offload": False, "ssd_offload_path": "", "tenant_id": "default",
                   "enable_client_http_server": False, "client_http_port": 9300, "enable_embedded_master": False, "credential": ""}


def _setup_args(args, kwargs):
    """The arguments of the long form of setup() by name; a TypeError names the wrong one."""
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
    """A connection to a pool; with a segment, it also contributes memory to the pool.

    Any number of threads may use it.  It is closed when freed, and at exit.  A forked child must create its own: there,
    the parent's object behaves as if not set up."""

    _config_type = ReplicateConfig
    _base_type = _Store
    _log = _setup.log
    _conf = None
    # local_buffer_size of setup(); BufferPool uses it
    _local_buffer = 0

    def close(self):
        self._end_sessions()
        self._close_segments()
        return super().close()

    close.__doc__ = _Store.close.__doc__

    def setup(self, *args, **kwargs):
        """setup(local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int,
        protocol: str, rdma_devices: str, master_server_addr: str, engine=None, enable_ssd_offload: bool = False,
        ssd_offload_path: str = "", tenant_id: str = "default", enable_client_http_server: bool = False,
        client_http_port: int = 9300, enable_embedded_master: bool = False, credential: str = "") -> int
        setup(config: dict) -> int

        Connect to the master, and contribute global_segment_size bytes of memory (0: none) under the name local_hostname
        ("host" or "host:port", at which peers reach this process).  The dict has the same names; sizes may be texts
        ("4gb"), None means the default.  enable_client_http_server: serve /health and /metrics of this process on
        client_http_port of all addresses; a port in use is a warning in the log.  credential: file with the credential for
        a pool with security, else MC_CREDENTIAL; its tenant is that of tenant_id "default".  device_name is an alias of
        rdma_devices, master_server_address of master_server_addr.

        0, -600 for wrong values, -1 if the master is not reachable within 5 seconds; the log "mooncake.store" gives the
        reason.  An open store is closed first."""
        if (len(args) == 1 and isinstance(args[0], dict) and not kwargs) or (
                not args and set(kwargs) == {"config"} and isinstance(kwargs["config"], dict)):
            config = args[0] if args else kwargs["config"]
            take = lambda: _setup.take_dict(config)
        else:
            values = _setup_args(args, kwargs)
            take = lambda: values
        try:
            given = take()
            conf = _setup.prepare(given)
        except _setup.Bad as e:
            _setup.log.error("setup: %s", e)
            return _setup.INVALID_PARAMS
        return self._connect(conf, _setup.parse_size(given["local_buffer_size"]))

    def _get_pyclient_capsule(self):
        # upstream's name for the object behind a store; objects that wrap a store pass it on
        return self

    def _connect(self, conf, local_buffer=0):
        self._local_buffer = local_buffer
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

        Use the pool through this host's daemon (mooncake_client, mcfs) at server_address ("host:port", "unix:PATH").
        mem_pool_size: bytes shared with the daemon for alloc_from_mem_pool(); local_buffer_size: bytes shared for values in
        other memory.  0, -600 for wrong values, -1 if the daemon is not reachable."""
        for name, value in (("mem_pool_size", mem_pool_size), ("local_buffer_size", local_buffer_size)):
            if not isinstance(value, int) or value < 0:
                raise TypeError(f"setup_dummy(): {name} must be a size from 0 on, not {value!r}")
        if not isinstance(server_address, str):
            raise TypeError(f"setup_dummy(): server_address must be a str, not {type(server_address).__name__}")
        if server_address in ("", "off", "auto") or "\0" in server_address:
            _setup.log.error('setup_dummy: "%s" is no address of a daemon (host:port, unix:PATH)', server_address)
            return _setup.INVALID_PARAMS
        return self._connect(dict(hostname="127.0.0.1", segment_size=0, master=_setup.DEFAULT_MASTER,
                                  daemon=server_address, daemon_buffer=local_buffer_size, daemon_pool=mem_pool_size),
                             local_buffer_size)

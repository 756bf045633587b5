# SPDX-License-Identifier: Apache-2.0
"""The transfer engine: TransferEngine moves bytes between the memory of processes.

Addresses are ints, lengths are bytes.  A peer's name is "host:port" with P2PHANDSHAKE (host and get_rpc_port() of the
peer), or its local_hostname at a metadata server.  Results are 0, or negative on failure; calls raise only for wrong
types.  Every call releases the GIL while it waits; transfers time out after MC_TRANSFER_TIMEOUT seconds (default 30, at
least 5) plus a nanosecond per byte."""

import os as _os

from mooncake._api.enums import _Number
from mooncake._engine import Engine as _Engine
from mooncake._setup import Log as _Log, engine_protocol as _engine_protocol

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_MNNVL = SUPPORT_MUSA = SUPPORT_INTRA_NVLINK = False
SUPPORT_MULTI_PROTOCOL = False

_log = _Log("mooncake.engine")


class TransferOpcode(_Number):
    """Direction of a transfer: Read from the peer, or Write to it."""

    Read = 0
    Write = 1


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """A message (the texts name and msg) that reaches the peer after the data."""

    def __init__(self, name="", msg=""):
        if not isinstance(name, str) or not isinstance(msg, str):
            raise TypeError("name and msg must be str")
        self.name = name
        self.msg = msg

    def __repr__(self):
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


class ScatterTransferCompletionStatus(_Number):
    """State of a scatter transfer: COMPLETED; FAILED_DRAINED: some fragments were not moved, and the memory is not used
    any more; COMPLETION_UNKNOWN: the transfers still use the memory."""

    COMPLETED = 0
    FAILED_DRAINED = -1
    COMPLETION_UNKNOWN = -2


class ScatterTransferTicket:
    """A scatter transfer that was started.  The caller must not free the memory before the ticket is drained; the ticket
    keeps the engine open until then, and its end waits for the transfers, which have the same time limit as others."""

    __slots__ = ("_inner",)

    def __new__(cls):
        raise TypeError("submit_scatter_write() and its relatives create tickets")

    @classmethod
    def _of(cls, inner):
        ticket = object.__new__(cls)
        ticket._inner = inner
        return ticket

    @property
    def status(self):
        """The result of the last drain(): COMPLETION_UNKNOWN until one has seen the end."""
        return ScatterTransferCompletionStatus(self._inner.status())

    @property
    def drained(self):
        """Whether the memory may be changed and freed."""
        return self.status is not ScatterTransferCompletionStatus.COMPLETION_UNKNOWN

    def drain(self, timeout_ms, /):
        """drain(timeout_ms: int) -> ScatterTransferCompletionStatus

        Wait until all transfers have ended, at most timeout_ms."""
        return ScatterTransferCompletionStatus(self._inner.drain(timeout_ms))


class InnerTransferEngine:
    """A reference to a TransferEngine, from get_engine(); keeps the engine open."""

    def __init__(self, engine):
        self._engine = engine


def _timeout_ms():
    try:
        seconds = int(_os.environ.get("MC_TRANSFER_TIMEOUT", "30"))
    except ValueError:
        seconds = 30
    return max(seconds, 5) * 1000


def _no_hints(transport_hint, nic_hint, said=[]):
    if (transport_hint or nic_hint) and not said:
        said.append(True)
        _log.warning("transport_hint and nic_hint have no effect on transfers on CUDA streams")


class TransferEngine(_Engine):
    """A transfer engine of this process; freeing the object closes the engine."""

    TransferOpcode = TransferOpcode

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        """initialize(local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int

        Start the engine.  metadata_server: "P2PHANDSHAKE", http://..., etcd://..., redis://..., or "host:port,..." of an
        etcd.  device_name: the network devices to use.  The engine chooses a protocol that both ends support.
        0, or -1; the log "mooncake.engine" gives the reason, and warns about an unavailable protocol."""
        _engine_protocol(protocol, _log)
        code, why = self._open(metadata_server or "", local_hostname or "", device_name or "",
                               "rdma" if protocol == "rdma" else "")
        if code:
            _log.error("initialize: %s", why)
        return code

    def initialize_ext(self, local_hostname, metadata_server, protocol, device_name, metadata_type):
        """initialize_ext(local_hostname: str, metadata_server: str, protocol: str, device_name: str,
        metadata_type: str) -> int

        As initialize(), with the kind of the metadata server in metadata_type: "etcd", "redis", "http"."""
        server = metadata_server or ""
        if metadata_type and "://" not in server and server != "P2PHANDSHAKE":
            server = f"{metadata_type}://{server}"
        return self.initialize(local_hostname, server, protocol, device_name)

    def get_engine(self):
        """get_engine() -> InnerTransferEngine: for MooncakeDistributedStore.setup(engine=)."""
        return InnerTransferEngine(self)

    # ---- synchronous transfers ----

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None,
                            transport_hint="", nic_hint=""):
        """batch_transfer_sync(target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int],
        lengths: list[int], opcode: TransferOpcode, notify: TransferNotify = None, transport_hint: str = "",
        nic_hint: str = "") -> int

        Transfer between local buffers and the peer's, and wait.  0 if all transfers succeeded, or -1.

        transport_hint: prefer "tcp", "rdma" or "shm" (memory of this host); nic_hint: prefer this NIC of the engine over
        RDMA.  A hint that cannot be followed changes nothing; unknown names are logged once."""
        message = (None, None) if notify is None else (notify.name, notify.msg)
        return self._transfer(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, _timeout_ms(),
                              *message, transport_hint, nic_hint)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="",
                                  nic_hint=""):
        """batch_transfer_sync_write(target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int],
        lengths: list[int], transport_hint: str = "", nic_hint: str = "") -> int

        Write local buffers to the peer's.  0 if all transfers succeeded, or -1."""
        return self._transfer(target_hostname, buffers, peer_buffer_addresses, lengths, 1, _timeout_ms(), None, None,
                              transport_hint, nic_hint)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="",
                                 nic_hint=""):
        """batch_transfer_sync_read(target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int],
        lengths: list[int], transport_hint: str = "", nic_hint: str = "") -> int

        Read the peer's buffers into local ones.  0 if all transfers succeeded, or -1."""
        return self._transfer(target_hostname, buffers, peer_buffer_addresses, lengths, 0, _timeout_ms(), None, None,
                              transport_hint, nic_hint)

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None,
                      transport_hint="", nic_hint=""):
        """transfer_sync(target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
        opcode: TransferOpcode, notify: TransferNotify = None, transport_hint: str = "", nic_hint: str = "") -> int

        One transfer.  0, or -1."""
        return self.batch_transfer_sync(target_hostname, (buffer,), (peer_buffer_address,), (length,), opcode, notify,
                                        transport_hint, nic_hint)

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""):
        """transfer_sync_write(target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
        transport_hint: str = "", nic_hint: str = "") -> int

        Write to the peer.  0, or -1."""
        return self._transfer(target_hostname, (buffer,), (peer_buffer_address,), (length,), 1, _timeout_ms(), None,
                              None, transport_hint, nic_hint)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""):
        """transfer_sync_read(target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
        transport_hint: str = "", nic_hint: str = "") -> int

        Read from the peer.  0, or -1."""
        return self._transfer(target_hostname, (buffer,), (peer_buffer_address,), (length,), 0, _timeout_ms(), None,
                              None, transport_hint, nic_hint)

    # ---- asynchronous transfers ----

    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint="",
                             nic_hint=""):
        """batch_transfer_async(target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int],
        lengths: list[int], opcode: TransferOpcode, transport_hint: str = "", nic_hint: str = "") -> int

        Start transfers.  Returns an id for get_batch_transfer_status() or transfer_check_status(), or 0 on failure.  The
        caller must not change or free the memory until one of them reports the end."""
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, _timeout_ms(), None, None,
                            transport_hint, nic_hint)

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="",
                                   nic_hint=""):
        """As batch_transfer_async() with TransferOpcode.Write."""
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, 1, transport_hint,
                                         nic_hint)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint="",
                                  nic_hint=""):
        """As batch_transfer_async() with TransferOpcode.Read."""
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, 0, transport_hint,
                                         nic_hint)

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint="", nic_hint=""):
        """transfer_submit_write(target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
        transport_hint: str = "", nic_hint: str = "") -> int

        Start one write.  Returns an id for transfer_check_status(), or 0 on failure."""
        return self.batch_transfer_async(target_hostname, (buffer,), (peer_buffer_address,), (length,), 1,
                                         transport_hint, nic_hint)

    # ---- addresses in arrays ----

    def batch_transfer_sync_write_arrays(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                         transport_hint="", nic_hint=""):
        """batch_transfer_sync_write_arrays(target_hostname: str, buffers: Buffer, peer_buffer_addresses: Buffer,
        lengths: Buffer, transport_hint: str = "", nic_hint: str = "") -> int

        As batch_transfer_sync_write(), with contiguous arrays of 64-bit integers, such as numpy's.  TypeError for other
        arrays, ValueError for unequal lengths and negative numbers."""
        return self._transfer_arrays(target_hostname, buffers, peer_buffer_addresses, lengths, 1, _timeout_ms(), None,
                                     None, transport_hint, nic_hint)

    def batch_transfer_sync_read_arrays(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                        transport_hint="", nic_hint=""):
        """As batch_transfer_sync_write_arrays(), but read the peer's buffers into local ones."""
        return self._transfer_arrays(target_hostname, buffers, peer_buffer_addresses, lengths, 0, _timeout_ms(), None,
                                     None, transport_hint, nic_hint)

    def batch_transfer_async_write_arrays(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                          transport_hint="", nic_hint=""):
        """As batch_transfer_async_write(), with arrays as batch_transfer_sync_write_arrays().  The arrays may be changed
        after the call."""
        return self._submit_arrays(target_hostname, buffers, peer_buffer_addresses, lengths, 1, _timeout_ms(), None,
                                   None, transport_hint, nic_hint)

    def batch_transfer_async_read_arrays(self, target_hostname, buffers, peer_buffer_addresses, lengths,
                                         transport_hint="", nic_hint=""):
        """As batch_transfer_async_write_arrays(), but read."""
        return self._submit_arrays(target_hostname, buffers, peer_buffer_addresses, lengths, 0, _timeout_ms(), None,
                                   None, transport_hint, nic_hint)

    def batch_transfer_sync_write_pages(self, target_hostname, src_pages, dst_pages, fields, max_batch_size=0,
                                        transport_hint="", nic_hint=""):
        """batch_transfer_sync_write_pages(target_hostname: str, src_pages: Buffer, dst_pages: Buffer, fields: Buffer,
        max_batch_size: int = 0, transport_hint: str = "", nic_hint: str = "") -> int

        Write pages of several fields.  A row of fields, an array [rows, 5], is (address, stride, peer's address, peer's
        stride, length): for each i, length bytes at address + src_pages[i] * stride are written to peer's address +
        dst_pages[i] * peer's stride.  At most max_batch_size transfers run at a time (0: no limit).  0, or -1: some may
        have been written.  Arrays as for batch_transfer_sync_write_arrays()."""
        return self._transfer_pages(target_hostname, src_pages, dst_pages, fields, max_batch_size, 1, _timeout_ms(),
                                    transport_hint, nic_hint)

    def batch_transfer_sync_read_pages(self, target_hostname, src_pages, dst_pages, fields, max_batch_size=0,
                                       transport_hint="", nic_hint=""):
        """As batch_transfer_sync_write_pages(), but read: src_pages and the first two columns are those of the local
        memory here too."""
        return self._transfer_pages(target_hostname, src_pages, dst_pages, fields, max_batch_size, 0, _timeout_ms(),
                                    transport_hint, nic_hint)

    # ---- scatter transfers ----

    def _ticket(self, what, opcode, wait, endpoint, *lists):
        inner, why = self._scatter(endpoint, *lists, opcode, _timeout_ms(), wait)
        if why:
            _log.error("%s: %s", what, why)
        return ScatterTransferTicket._of(inner)

    def submit_scatter_write(self, endpoint, local_base_addresses, local_capacities, remote_base_addresses,
                             remote_capacities, local_offsets, remote_offsets, lengths):
        """submit_scatter_write(endpoint: str, local_base_addresses: list[int], local_capacities: list[int],
        remote_base_addresses: list[int], remote_capacities: list[int], local_offsets: list[list[int]],
        remote_offsets: list[list[int]], lengths: list[list[int]]) -> ScatterTransferTicket

        Start to write fragments of ranges: of range i, for each k, lengths[i][k] bytes at local_offsets[i][k] to
        remote_offsets[i][k].  A fragment outside of its range, lists of unequal lengths and an unknown peer give a
        ticket that is FAILED_DRAINED; the log "mooncake.engine" has the reason."""
        return self._ticket("submit_scatter_write", 1, False, endpoint, local_base_addresses, local_capacities,
                            remote_base_addresses, remote_capacities, local_offsets, remote_offsets, lengths)

    def submit_scatter_read(self, endpoint, local_base_addresses, local_capacities, remote_base_addresses,
                            remote_capacities, local_offsets, remote_offsets, lengths):
        """As submit_scatter_write(), but read the peer's fragments into the local ones."""
        return self._ticket("submit_scatter_read", 0, False, endpoint, local_base_addresses, local_capacities,
                            remote_base_addresses, remote_capacities, local_offsets, remote_offsets, lengths)

    def scatter_transfer_sync_write_with_ticket(self, endpoint, local_base_addresses, local_capacities,
                                                remote_base_addresses, remote_capacities, local_offsets, remote_offsets,
                                                lengths):
        """As submit_scatter_write(), and wait for the end."""
        return self._ticket("scatter_transfer_sync_write_with_ticket", 1, True, endpoint, local_base_addresses,
                            local_capacities, remote_base_addresses, remote_capacities, local_offsets, remote_offsets,
                            lengths)

    def scatter_transfer_sync_read_with_ticket(self, endpoint, local_base_addresses, local_capacities,
                                               remote_base_addresses, remote_capacities, local_offsets, remote_offsets,
                                               lengths):
        """As submit_scatter_read(), and wait for the end."""
        return self._ticket("scatter_transfer_sync_read_with_ticket", 0, True, endpoint, local_base_addresses,
                            local_capacities, remote_base_addresses, remote_capacities, local_offsets, remote_offsets,
                            lengths)

    # ---- transfers on a CUDA stream ----

    def batch_transfer_write_on_cuda(self, target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=0,
                                     transport_hint="", nic_hint=""):
        """batch_transfer_write_on_cuda(target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int],
        lengths: list[int], stream_ptr: int = 0, transport_hint: str = "", nic_hint: str = "") -> None

        Write local buffers to the peer's when the stream (0: the default one) gets there; later work of the stream
        begins after that.  Returns at once.  RuntimeError if the transfers cannot be queued; if one fails later, the
        process ends, as in upstream.  Hints are not followed here, which is logged."""
        _no_hints(transport_hint, nic_hint)
        self._on_cuda(target_hostname, buffers, peer_buffer_addresses, lengths, 1, 0, None, None, transport_hint,
                      nic_hint, stream_ptr)

    def batch_transfer_read_on_cuda(self, target_hostname, buffers, peer_buffer_addresses, lengths, stream_ptr=0,
                                    transport_hint="", nic_hint=""):
        """As batch_transfer_write_on_cuda(), but read the peer's buffers into local ones."""
        _no_hints(transport_hint, nic_hint)
        self._on_cuda(target_hostname, buffers, peer_buffer_addresses, lengths, 0, 0, None, None, transport_hint,
                      nic_hint, stream_ptr)

    def transfer_write_on_cuda(self, target_hostname, buffer, peer_buffer_address, length, stream_ptr=0,
                               transport_hint="", nic_hint=""):
        """transfer_write_on_cuda(target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
        stream_ptr: int = 0, transport_hint: str = "", nic_hint: str = "") -> None

        One write, as batch_transfer_write_on_cuda()."""
        self.batch_transfer_write_on_cuda(target_hostname, (buffer,), (peer_buffer_address,), (length,), stream_ptr,
                                          transport_hint, nic_hint)

    def transfer_read_on_cuda(self, target_hostname, buffer, peer_buffer_address, length, stream_ptr=0,
                              transport_hint="", nic_hint=""):
        """As transfer_write_on_cuda(), but read."""
        self.batch_transfer_read_on_cuda(target_hostname, (buffer,), (peer_buffer_address,), (length,), stream_ptr,
                                         transport_hint, nic_hint)

    def get_notifies(self):
        """get_notifies() -> list[TransferNotify]: messages received since the last call."""
        return [TransferNotify(name, msg) for name, msg in self._notifies()]


_LATER = {"SharedSegment": "_api.shared", "RpcInterface": "_rpc", "create_rpc_client": "_rpc", "create_rpc_server": "_rpc"}


def __getattr__(name):
    # on first use: sockets and threads take time to import
    import importlib

    if name == "CoroRPCInterface":
        name = "RpcInterface"
    if name in _LATER:
        return getattr(importlib.import_module(f"mooncake.{_LATER[name]}"), name)
    raise AttributeError(f"module 'mooncake.engine' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_LATER, "CoroRPCInterface"])

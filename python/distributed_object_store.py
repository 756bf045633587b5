# SPDX-License-Identifier: Apache-2.0
"""The store under the names of upstream's first releases, which old programs and guides import."""

from mooncake.store import MooncakeDistributedStore

__all__ = ["DistributedObjectStore", "distributed_object_store"]


class DistributedObjectStore(MooncakeDistributedStore):
    """MooncakeDistributedStore; initAll() is init_all()."""

    initAll = MooncakeDistributedStore.init_all


distributed_object_store = DistributedObjectStore

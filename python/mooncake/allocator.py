# SPDX-License-Identifier: Apache-2.0
"""Not available in this package: a memory allocator of torch for NVLink."""

raise ImportError("mooncake.allocator is a memory allocator of torch for NVLink; this package has the store and the transfer engine, "
                  "no GPU kernels")

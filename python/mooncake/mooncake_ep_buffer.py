# SPDX-License-Identifier: Apache-2.0
"""Not available in this package: buffers of the expert-parallel kernels for CUDA devices."""

raise ImportError("mooncake.mooncake_ep_buffer is buffers of the expert-parallel kernels for CUDA devices; this package has the store and the transfer engine, "
                  "no GPU kernels")

# SPDX-License-Identifier: Apache-2.0
"""Not available in this package: elastic buffers of the expert-parallel kernels for CUDA devices."""

raise ImportError("mooncake.mooncake_elastic_buffer is elastic buffers of the expert-parallel kernels for CUDA devices; this package has the store and the transfer engine, "
                  "no GPU kernels")

# SPDX-License-Identifier: Apache-2.0
"""Not available in this package: expert-parallel dispatch and combine kernels for CUDA devices."""

raise ImportError("mooncake.ep is expert-parallel dispatch and combine kernels for CUDA devices; this package has the store and the transfer engine, "
                  "no GPU kernels")

# SPDX-License-Identifier: Apache-2.0
"""Not available in this package: a back end of torch.distributed for CUDA devices."""

raise ImportError("mooncake.pg is a back end of torch.distributed for CUDA devices; this package has the store and the transfer engine, "
                  "no GPU kernels")

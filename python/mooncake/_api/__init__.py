# SPDX-License-Identifier: Apache-2.0
"""Parts of the store class, one file per group of methods."""

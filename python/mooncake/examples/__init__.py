# SPDX-License-Identifier: Apache-2.0
"""Programs that show how the package is used; python -m mooncake.examples.NAME."""

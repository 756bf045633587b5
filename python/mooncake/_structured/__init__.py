# SPDX-License-Identifier: Apache-2.0
"""The object formats behind structured_object_store: bundles, data protos, rows."""

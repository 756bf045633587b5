# SPDX-License-Identifier: Apache-2.0
"""Bundles: metadata and named parts under one manifest, stored atomically."""

from __future__ import annotations

import uuid
from typing import Any, Iterable, Mapping, Optional, Union

from mooncake._structured import bundle_format as fmt
from mooncake._structured.bundle_format import BundleTransferPolicy, RemoteBundleRef
from mooncake._structured.bundle_members import put_members
from mooncake._structured.bundle_payload import Payloads, bytes_view

BundleRef = Union[RemoteBundleRef, Mapping[str, Any]]


def parts_of_ref(ref: BundleRef) -> tuple[Any, Any]:
    """The manifest's key and the manifest, each None if the reference does not have it."""
    if isinstance(ref, RemoteBundleRef):
        return ref.manifest_key, ref.manifest or None
    return ref.get("manifest_key"), ref.get("manifest") or None


class Bundles:
    """The bundles below a prefix."""

    def __init__(self, payloads: Payloads, prefix: str, chunk_bytes: int) -> None:
        self.payloads = payloads
        self.prefix = prefix
        self.chunk_bytes = chunk_bytes

    def put(self, meta: Any, members: Mapping[str, Any], partition: str, chunk_bytes: Optional[int],
            policy: BundleTransferPolicy, config: Any = None, onto: Optional[BundleRef] = None) -> RemoteBundleRef:
        """Store @members and the buffer @meta as a bundle that also includes the parts of the bundle @onto, whose reference
        stays readable until the new bundle is removed.  On failure, removes the stored parts."""
        fmt.check_segment(partition, "partition")
        view = bytes_view(meta, "meta")
        size = fmt.checked_chunk_bytes(self.chunk_bytes if chunk_bytes is None else chunk_bytes)
        own = f"{partition}/{uuid.uuid4().hex}"
        base = f"{self.prefix}/{own}"
        key = f"{base}/manifest"
        manifest: dict[str, Any] = {"version": 1, "layout": "bundle", "object_id": own}
        written = [key]
        try:
            plain = BundleTransferPolicy(policy.max_inflight_put, policy.put_mode, "copy")
            manifest["meta"] = put_members(self.payloads, base, {"meta": view}, size, plain, config, written)["meta"]
            manifest["buffers"] = put_members(self.payloads, f"{base}/buffer", members, size, policy, config, written)
            if onto is not None:
                self._add(manifest, onto)
            fmt.check_manifest(manifest, self.prefix)
            self.payloads.stored_config("put", key, fmt.encode_json(manifest, "bundle manifest"), config=config)
        except BaseException:
            # include the failed key: the store may have stored it before the reply was lost
            self.payloads.remove(written, strict=False)
            raise
        return RemoteBundleRef(key, manifest)

    def _add(self, manifest: dict[str, Any], onto: BundleRef) -> None:
        old = self.resolve(onto)
        twice = sorted(set(old["buffers"]) & set(manifest["buffers"]))
        if twice:
            raise ValueError(f"structured members already exist: {twice}")
        manifest["buffers"] = {**old["buffers"], **manifest["buffers"]}
        cleanup = [*old.get("cleanup_keys", ()), self.manifest_key(onto, old), *fmt.payload_keys(old["meta"])]
        keys = [payload["key"] for payload in manifest["buffers"].values()] + cleanup
        ids = {fmt.object_id_of(k, self.prefix) for k in keys}
        manifest["buffer_object_ids"] = sorted(i for i in ids if i)
        manifest["cleanup_keys"] = list(dict.fromkeys(cleanup))

    def resolve(self, ref: BundleRef) -> dict[str, Any]:
        """The manifest of a bundle, read unless the reference has it.  A ValueError if it is missing or damaged."""
        key, manifest = parts_of_ref(ref)
        if manifest is None:
            if not isinstance(key, str):
                raise ValueError("bundle ref must include manifest_key")
            manifest = fmt.decode_json(self.payloads.store.get(key), f"bundle manifest {key}")
        fmt.check_manifest(manifest, self.prefix)
        return manifest

    def manifest_key(self, ref: BundleRef, manifest: Mapping[str, Any]) -> str:
        expected = f"{self.prefix}/{manifest['object_id']}/manifest"
        key, _ = parts_of_ref(ref)
        if key is not None and key != expected:
            raise ValueError("bundle manifest_key does not match manifest object_id")
        return expected

    def exists(self, key: Any) -> Optional[bool]:
        """Whether the key exists; None if unknown."""
        one, many = (getattr(self.payloads.store, name, None) for name in ("is_exist", "batch_is_exist"))
        if not isinstance(key, str) or not (callable(one) or callable(many)):
            return None
        # is_exist() returns 0 also if the master is not reachable
        status = many([key])[0] if callable(many) else one(key)
        if status not in (0, 1):
            raise RuntimeError(f"is_exist failed for {key}: {status}")
        return status == 1

    def remove(self, ref: BundleRef) -> None:
        """Remove a bundle: first the parts, then the manifest, so that a partial removal can be retried.  A missing bundle
        counts as removed."""
        try:
            manifest = self.resolve(ref)
        except Exception:
            if self.exists(parts_of_ref(ref)[0]) is False:
                return
            raise
        own = self.manifest_key(ref, manifest)
        self.remove_keys(fmt.bundle_keys(manifest))
        self.remove_keys([own])

    def remove_keys(self, keys: Iterable[str]) -> None:
        self.payloads.remove(keys, strict=True)

    def read_meta(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a structured object."""
        meta = manifest["meta"]
        return fmt.decode_json(self.payloads.read(meta), f"structured metadata {meta['key']}")

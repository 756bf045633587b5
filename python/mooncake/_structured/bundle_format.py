# SPDX-License-Identifier: Apache-2.0
"""Format of bundles in the store, and its validation.

PREFIX/PARTITION/ID is a bundle: .../manifest is JSON that names the parts, .../meta describes them, .../buffer/NAME are
the parts.  A part is one object, or .../chunk/0, 1, 2 and so on if it is longer than a chunk; an empty part has no
object.  The manifest is written last and removed last: without one, there is no bundle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Optional, Protocol, Sequence

DEFAULT_BUNDLE_CHUNK_BYTES = 64 << 20
# smallest payload that several threads write, if the policy allows more than one
AUTO_PARALLEL_MIN_BYTES = DEFAULT_BUNDLE_CHUNK_BYTES
AUTO_PARALLEL_MIN_CHUNKS = 8
# the store's result for removing a missing object
MISSING_OBJECT_ERROR = -704
STRUCTURED_FIELD_SPECS_KEY = "__mooncake_structured_fields__"


class BundleStore(Protocol):
    """The methods that a store must have; other methods of MooncakeDistributedStore are used if present."""

    def put(self, key: str, value: Any, config: Any = None) -> int: ...

    def get(self, key: str) -> bytes: ...

    def remove(self, key: str, force: bool = False) -> int: ...

    def is_exist(self, key: str) -> int: ...


@dataclass(frozen=True)
class BundleTransferPolicy:
    """Options for writing a bundle.

    max_inflight_put: threads that write chunks.  put_mode: "parallel" always uses them, "batch" never, "auto" from 8
    chunks and 64 MiB on.  copy_mode: "copy" serializes tensors here instead of in the store; "zero_copy" accepts only
    tensor_object_buffer()."""

    max_inflight_put: int = 1
    put_mode: Literal["auto", "batch", "parallel"] = "auto"
    copy_mode: Literal["auto", "zero_copy", "copy"] = "auto"


@dataclass
class RemoteBundleRef:
    """Reference to a bundle: the key of its manifest, and the manifest, {} if not yet read."""

    manifest_key: str
    manifest: dict[str, Any]


def checked_policy(policy: Optional[BundleTransferPolicy], inflight: Optional[int] = None) -> BundleTransferPolicy:
    """@policy, or the default one, with @inflight threads if given; a ValueError if it is invalid."""
    policy = policy or BundleTransferPolicy()
    if inflight is not None:
        policy = BundleTransferPolicy(inflight, policy.put_mode, policy.copy_mode)
    if policy.max_inflight_put < 1:
        raise ValueError("max_inflight_put must be positive")
    if policy.put_mode not in ("auto", "batch", "parallel"):
        raise ValueError(f"unsupported put_mode: {policy.put_mode}")
    if policy.copy_mode not in ("auto", "zero_copy", "copy"):
        raise ValueError(f"unsupported copy_mode: {policy.copy_mode}")
    return policy


def checked_chunk_bytes(size: int) -> int:
    if size <= 0:
        raise ValueError("chunk_bytes must be positive")
    return size


def checked_prefix(prefix: str) -> str:
    """@prefix without slashes around it."""
    prefix = prefix.strip("/")
    if not prefix or min(prefix) < " ":
        raise ValueError("key_prefix must be a non-empty key prefix without control characters")
    return prefix


def check_segment(value: Any, what: str) -> None:
    """A ValueError unless @value is valid as a component of a key."""
    if not isinstance(value, str) or not value or "/" in value or min(value) < " ":
        raise ValueError(f"invalid bundle {what}: {value!r} must be a non-empty string without slashes and control characters")


def encode_json(value: Mapping[str, Any], what: str) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except TypeError as e:
        raise TypeError(f"{what} must be JSON-serializable: {e}") from e


def decode_json(data: Any, what: str) -> dict[str, Any]:
    """Parse @data as a JSON object; a ValueError if it is another value, or empty."""
    data = bytes(data)
    if not data:
        raise ValueError(f"{what} was not found")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{what} is damaged: {e}") from e
    if not isinstance(value, dict):
        raise ValueError(f"{what} must decode to a dict, not {type(value).__name__}")
    return value


def payload_keys(payload: Mapping[str, Any]) -> list[str]:
    return [chunk["key"] for chunk in payload["chunks"]]


def bundle_keys(manifest: Mapping[str, Any]) -> list[str]:
    """All keys of a bundle except the manifest's."""
    keys = payload_keys(manifest["meta"])
    for payload in manifest["buffers"].values():
        keys += payload_keys(payload)
    return keys + list(manifest.get("cleanup_keys", ()))


def object_id_of(key: str, prefix: str) -> Optional[str]:
    """PARTITION/ID of a key below @prefix; None if the key does not belong to a bundle."""
    if not key.startswith(f"{prefix}/"):
        return None
    rest = key[len(prefix) + 1:]
    for end in ("/manifest", "/meta"):
        if rest.endswith(end):
            return rest[:-len(end)]
    for middle in ("/meta/", "/buffer/"):
        at = rest.find(middle)
        if at > 0:
            return rest[:at]
    return None


def _count(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"bundle {what} bytes must be non-negative, not {value!r}")
    return value


def _check_payload(payload: Any, bases: Sequence[str]) -> None:
    if not isinstance(payload, dict):
        raise ValueError("bundle payload spec must be a dict")
    key = payload.get("key")
    if not isinstance(key, str) or not key.startswith(tuple(f"{base}/" for base in bases)):
        raise ValueError(f"bundle payload key is outside the bundle namespace: {key!r}")
    total = _count(payload.get("bytes"), "payload")
    chunks = payload.get("chunks")
    if not isinstance(chunks, list) or (total and not chunks):
        raise ValueError("bundle payload chunks are invalid: not a list")
    found, seen = 0, set()
    for chunk in chunks:
        if not isinstance(chunk, dict):
            raise ValueError("bundle chunk must be a dict")
        name = chunk.get("key")
        if not isinstance(name, str) or (name != key and not name.startswith(f"{key}/")):
            raise ValueError(f"bundle chunk key is outside the payload namespace: {name!r}")
        if name in seen:
            raise ValueError(f"bundle chunk keys must be unique: {name!r}")
        seen.add(name)
        found += _count(chunk.get("bytes"), "chunk")
    if found != total:
        raise ValueError(f"bundle payload chunks total {found} bytes, expected {total}")


def check_manifest(manifest: Any, prefix: str) -> None:
    """A ValueError unless @manifest is that of a bundle below @prefix, has keys only below its own bundles, and has
    consistent sizes."""
    if not isinstance(manifest, Mapping) or manifest.get("version") != 1 or manifest.get("layout") != "bundle":
        raise ValueError("invalid bundle manifest, or one of another version")
    own = manifest.get("object_id")
    if not isinstance(own, str):
        raise ValueError("bundle manifest object_id must be a string")
    ids = manifest.get("buffer_object_ids", [own])
    if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
        raise ValueError("bundle manifest buffer_object_ids must be a list of strings")
    bases = [f"{prefix}/{i}" for i in ids]
    _check_payload(manifest.get("meta"), [f"{prefix}/{own}"])
    inside = tuple(f"{base}/" for base in bases)
    cleanup = manifest.get("cleanup_keys", [])
    if not isinstance(cleanup, list) or not all(isinstance(k, str) and k.startswith(inside) for k in cleanup):
        raise ValueError("bundle manifest cleanup_keys are outside the bundle namespace")
    buffers = manifest.get("buffers")
    if not isinstance(buffers, dict):
        raise ValueError("bundle manifest buffers must be a dict")
    for name, payload in buffers.items():
        check_segment(name, "buffer name")
        _check_payload(payload, bases)

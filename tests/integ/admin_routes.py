# SPDX-License-Identifier: Apache-2.0
"""Print the shape of every answer of a master's admin HTTP service: one line per request with the
status and the
content type; for JSON each field's name and type, in order; for text its layout.  Values that
differ between
masters (names, ids, counts, times) are left out.

    admin_routes.py BASE [tenants]

The master has one segment with the object "plain".  A drain is started and cancelled."""
import json
import re
import sys
import time
import urllib.error
import urllib.request

BASE = sys.argv[1]


def ask(method, path, body=None):
    request = urllib.request.Request(BASE + path, method=method, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers.get("Content-Type"), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Content-Type"), error.read()


def shape(value):
    if isinstance(value, dict):
        items = value.items()
        # the keys of a map have no fixed order
        if value and all(isinstance(v, dict) and "ok" in v for v in value.values()):
            items = sorted(items)
        return "{" + ", ".join(f"{k}: {shape(v)}" for k, v in items) + "}"
    if isinstance(value, list):
        return "[" + " | ".join(sorted({shape(v) for v in value})) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else "bool"
    return "string" if isinstance(value, str) else "number"


# Words on which programs base decisions are compared literally.
WORDS = {"success", "status", "status_name", "type", "type_name", "error_code", "error", "ok", "role", "ha_state",
         "service_ready", "present", "enabled", "total_segments", "admission_closed", "over_quota",
         "has_explicit_policy", "removed_count", "succeeded_units", "failed_units", "active_units",
         "requested_quota_bytes"}


def words(value, out):
    if isinstance(value, dict):
        for k, v in sorted(value.items()) if "plain" in value else value.items():
            if k in WORDS and not isinstance(v, (dict, list)):
                out.append(f"{k}={json.dumps(v)}")
            words(v, out)
    elif isinstance(value, list):
        for v in value:
            words(v, out)
    return out


def text_shape(path, text):
    if path == "/metrics":
        # another test checks which series exist
        kinds = {line.split()[1] if line.startswith("#") else "value" for line in text.splitlines() if line}
        return " ".join(sorted(kinds & {"HELP", "TYPE", "value"}))
    if path == "/metrics/summary":
        return " ".join(re.findall(r"^role=\w+, state=\w+, service_ready=\w+, master=|, ha=", text))
    return re.sub(r"\d+(\.\d+)*", "N", text.replace(SEGMENT, "SEGMENT"))


def show(method, path, body=None, note="", settled=None):
    """Print the answer's shape; settled: repeat the request until this predicate holds for the
    answer's JSON."""
    end = time.time() + 30
    while True:
        status, kind, text = ask(method, path, body)
        if settled is None or settled(json.loads(text)) or time.time() > end:
            break
        time.sleep(0.05)
    # the content type of an empty answer, or of an error from the HTTP server itself, is arbitrary
    kind = (kind or "").split(";")[0]
    line = f"{method} {path.replace(SEGMENT, 'SEGMENT').replace(JOB, 'JOB')} {note}: {status}"
    if kind == "application/json":
        value = json.loads(text)
        if isinstance(value, dict):
            # the name before 0.3.14, which ours keeps beside the new one
            value.pop("skipped_unparsed_keys", None)
        if isinstance(value, dict) and isinstance(value.get("data"), list):
            value["data"].sort(key=lambda row: row.get("tenant_id", ""))
        line += f" {kind} {shape(value)} {' '.join(words(value, []))}"
    elif status != 404:
        line += f" {kind} {text_shape(path.split('?')[0], text.decode())!r}"
    print(line.replace(SEGMENT, "SEGMENT"))
    return text


SEGMENT, JOB = "\0", "\0"
SEGMENT = ask("GET", "/get_all_segments")[2].decode().strip()
# upstream's server does not decode escapes
quoted = SEGMENT

if len(sys.argv) > 2:
    tenants = "/api/v1/tenant_quotas"
    show("GET", tenants)
    for query in "?tenant_id=blue", "?tenant_id=red", "?tenant_id=default", "?tenant_id=":
        show("GET", tenants + query)
    for body in b'{"requested_quota_bytes":5000000}', b"", b"x", b"[]", b"{}", b'{"requested_quota_bytes":0}', \
            b'{"requested_quota_bytes":-1}', b'{"requested_quota_bytes":"5"}', b'{"requested_quota_bytes":1.5}', \
            b'{"requested_quota_bytes":9223372036854775807}', b'{"requested_quota_bytes":9223372036854775808}':
        show("PUT", tenants + "?tenant_id=red", body, body)
    show("PUT", tenants, b'{"requested_quota_bytes":5000000}')
    show("GET", tenants + "?tenant_id=red")
    for query in "", "?tenant_id=red", "?tenant_id=red", "?tenant_id=none", "?tenant_id=default":
        show("DELETE", tenants + query)
    for method in "POST", "PATCH":
        show(method, tenants, b"")
    for query in "?tenant_id=blue", "?tenant_id=none", "?force=1":
        show("POST", "/api/v1/remove_all" + query, b"")
    sys.exit()

for path in "/metrics", "/metrics/summary", "/health", "/role", "/ha_status", "/leader", "/kv_events/status", \
        "/query_key", "/query_key?key=", "/query_key?key=none", "/query_key?key=plain", "/batch_query_keys", \
        "/batch_query_keys?keys=", "/batch_query_keys?keys=,,", "/batch_query_keys?keys=plain", \
        "/batch_query_keys?keys=none", "/batch_query_keys?keys=plain,none,,more", \
        "/batch_query_keys?keys=plain,", "/batch_query_keys?keys=,plain", "/get_all_keys", "/get_all_segments", \
        "/get_segments_detail", "/query_segment", "/query_segment?segment=none", f"/query_segment?segment={quoted}", \
        "/api/v1/segments/status", "/api/v1/segments/status?segment=none", \
        f"/api/v1/segments/status?segment={quoted}", "/api/v1/tenant_quotas", "/api/v1/tenant_quotas?tenant_id=x", \
        "/api/v1/drain_jobs", "/api/v1/drain_jobs/cancel", "/api/v1/remove_all", "/version", "/", "/nothing":
    show("GET", path)
for path in "/health", "/query_key?key=plain", "/get_segments_detail", "/api/v1/drain_jobs/query", "/nothing":
    show("POST", path, b"")
for action in "soft_pin", "soft_unpin":
    show("GET", "/api/v1/" + action)
    for body in b"[]", b"{}", b'{"keys":[]}', b'{"keys":"plain"}', b'{"keys":[1]}', b'{"keys":["plain"]}', \
            b'{"keys":["plain","none","","plain"],"ttl_ms":1000}', b'{"keys":["plain","none",""]}', \
            b'{"keys":["plain"],"ttl_ms":0}', b'{"keys":["plain"],"ttl_ms":null}', b'{"keys":["plain"],"ttl_ms":-1}', \
            b'{"keys":["plain"],"ttl_ms":1.5}', b'{"keys":["plain"],"ttl_ms":"1"}', \
            b'{"keys":["plain"],"ttl_ms":604800000}', b'{"keys":["plain"],"ttl_ms":604800001}', \
            b'{"keys":["plain"],"tenant_id":"_x","ttl_ms":1}', b'{"keys":["plain"],"tenant_id":"x\\n","ttl_ms":1}', \
            b'{"keys":["plain"],"tenant_id":"default","other":1}', b'{"keys":["plain"]} x':
        show("POST", "/api/v1/" + action, body, body)
    for n in 4096, 4097:
        body = {"keys": [f"key-{i}" for i in range(n)]} | ({"ttl_ms": 1} if action == "soft_pin" else {})
        show("POST", "/api/v1/" + action, json.dumps(body).encode(), n)
show("PUT", "/api/v1/tenant_quotas?tenant_id=x", b'{"requested_quota_bytes":5}')
show("DELETE", "/api/v1/tenant_quotas?tenant_id=x")

for body in b"", b"{", b"[]", b"7", b"{}", b'{"segments":[]}', b'{"segments":"x"}', b'{"segments":[1]}', \
        b'{"segments":["none"]}', b'{"segments":["none"],"max_concurrency":0}', \
        b'{"segments":["none"],"max_concurrency":"4"}', b'{"segments":["none"],"target_segments":7}':
    show("POST", "/api/v1/drain_jobs", body, body)
for query in "", "?job_id=", "?job_id=x", "?job_id=1-2":
    show("GET", "/api/v1/drain_jobs/query" + query)
    show("POST", "/api/v1/drain_jobs/cancel" + query, b"")
made = show("POST", "/api/v1/drain_jobs", json.dumps({"segments": [SEGMENT]}).encode(), "a drain")
JOB = json.loads(made).get("job_id", "\0")
show("GET", f"/api/v1/drain_jobs/query?job_id={JOB}",
     settled=lambda job: job.get("status_name") not in ("CREATED", "PLANNING"))
show("GET", f"/api/v1/segments/status?segment={quoted}", note="draining")
show("GET", "/get_segments_detail", note="draining")
show("POST", f"/api/v1/drain_jobs/cancel?job_id={JOB}", b"")
show("GET", f"/api/v1/drain_jobs/query?job_id={JOB}", note="cancelled",
     settled=lambda job: job.get("status_name") == "CANCELED")
show("POST", f"/api/v1/drain_jobs/cancel?job_id={JOB}", b"", "cancelled")
show("GET", f"/api/v1/segments/status?segment={quoted}", note="cancelled")
show("POST", "/api/v1/remove_all?force=true", b"")
show("POST", "/api/v1/remove_all", b"")

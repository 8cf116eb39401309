#!/usr/bin/env python3
"""Cuts Google's discovery documents down to what the simulator checks: slim.py FOLDER_WITH_THE_WHOLE_DOCUMENTS"""

import json
import sys

WANTED = {
    "gmail.v1.json": {
        "methods": [
            "users.getProfile", "users.watch", "users.stop", "users.history.list", "users.labels.list",
            "users.labels.get", "users.messages.list", "users.messages.get", "users.messages.attachments.get",
        ],
        "schemas": [],
    },
    "admin.directory_v1.json": {
        "methods": ["users.list", "users.get", "groups.list", "groups.get", "members.list", "orgunits.list"],
        "schemas": [],
    },
    "oauth2.v2.json": {"methods": ["userinfo.get"], "schemas": []},
    "pubsub.v1.json": {"methods": [], "schemas": ["PubsubMessage", "PushConfig", "OidcToken"]},
}
DROPPED = {"description", "enumDescriptions", "annotations", "parameterOrder", "flatPath"}


def is_kept(key, inner):
    """A field may be named as what is there for people; it is an object then."""
    return key not in DROPPED or key != "annotations" and isinstance(inner, dict)


def plain(value):
    """Without what is there for people."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if is_kept(key, inner)}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def referred(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from referred(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from referred(inner)


def slim(document, methods, schemas):
    out = {key: document[key] for key in ("id", "revision", "rootUrl", "servicePath", "batchPath")}
    out["parameters"] = plain(document["parameters"])
    out["methods"] = {}
    for name in methods:
        *path, last = name.split(".")
        node = document
        for step in path:
            node = node["resources"][step]
        out["methods"][name] = plain(node["methods"][last])
    out["schemas"] = {}
    wanted = list(schemas) + list(referred(out["methods"]))
    while wanted:
        name = wanted.pop()
        if name not in out["schemas"]:
            out["schemas"][name] = plain(document["schemas"][name])
            wanted.extend(referred(out["schemas"][name]))
    return out


for name, parts in WANTED.items():
    with open(f"{sys.argv[1]}/{name}") as source:
        small = slim(json.load(source), **parts)
    with open(name, "w") as target:
        json.dump(small, target, indent=1, sort_keys=True)
        target.write("\n")

#!/usr/bin/env python3
"""Cuts Microsoft's OpenAPI description of Graph down to what the simulator checks, in the language of Google's discovery
documents, so that one reader is enough for both: slim_graph.py THE_WHOLE_DOCUMENT"""

import json
import sys

MAILBOX = [
    "", "/mailFolders", "/mailFolders/{mailFolder-id}", "/mailFolders/{mailFolder-id}/childFolders",
    "/mailFolders/microsoft.graph.delta()", "/mailFolders/{mailFolder-id}/messages",
    "/mailFolders/{mailFolder-id}/messages/microsoft.graph.delta()", "/messages", "/messages/{message-id}",
    "/messages/{message-id}/$value", "/messages/{message-id}/attachments",
    "/messages/{message-id}/attachments/{attachment-id}",
]
WANTED = [(f"{root}{rest}", ["get"]) for root in ("/me", "/users/{user-id}") for rest in MAILBOX] + [
    ("/users", ["get"]),
    ("/users/microsoft.graph.delta()", ["get"]),
    ("/subscriptions", ["get", "post"]),
    ("/subscriptions/{subscription-id}", ["get", "patch", "delete"]),
    ("/subscriptions/{subscription-id}/microsoft.graph.reauthorize", ["post"]),
]
MORE_SCHEMAS = [
    "microsoft.graph.fileAttachment", "microsoft.graph.itemAttachment", "microsoft.graph.referenceAttachment",
    "microsoft.graph.mailSearchFolder", "microsoft.graph.changeNotificationCollection",
    "microsoft.graph.ODataErrors.ODataError",
]
# What leads from one entity to others is not part of it, but for these.
KEPT_NAVIGATION = {"attachments", "item"}
# What OData adds to any entity, and to any collection.
OF_ENTITIES = ["@odata.type", "@odata.etag", "@odata.id", "@odata.context", "@odata.editLink"]
OF_COLLECTIONS = ["@odata.context", "@odata.nextLink", "@odata.deltaLink"]
FORMATS = {"date-time": "google-datetime", "base64url": "byte", "binary": "byte"}

document = json.load(open(sys.argv[1]))
components = document["components"]
text = {"type": "string"}


def resolve(value):
    while "$ref" in value:
        node = document
        for step in value["$ref"].removeprefix("#/").split("/"):
            node = node[step]
        value = node
    return value


def name_of(schema):
    return schema["$ref"].rsplit("/", 1)[1]


def shape(schema):
    """One schema in the other language; what is named stays a reference."""
    if "$ref" in schema:
        return {"$ref": name_of(schema)}
    if "allOf" in schema:
        return {"type": "object", "properties": properties(schema)}
    if "anyOf" in schema or "oneOf" in schema:
        return {"type": "any"}
    kind = schema.get("type")
    if kind == "array":
        out = {"type": "array", "items": shape(schema["items"])}
    elif kind == "object" or "properties" in schema:
        fields = properties(schema)
        out = {"type": "object", "properties": fields} if fields else {"type": "any"}
    elif kind in ("integer", "number"):
        whole = kind == "integer" or schema.get("format") == "int32"
        out = {"type": "integer", "format": "int32"} if whole else {"type": "number"}
    elif kind == "boolean":
        out = {"type": "boolean"}
    else:
        out = dict(text)
        if "enum" in schema:
            out["enum"] = schema["enum"]
        elif schema.get("format") in FORMATS:
            out["format"] = FORMATS[schema["format"]]
    if schema.get("nullable"):
        out["nullable"] = True
    return out


def properties(schema):
    if "$ref" in schema:
        schema = resolve(schema)
    fields = {}
    for part in schema.get("allOf", []):
        fields.update(properties(part))
    for name, inner in schema.get("properties", {}).items():
        if not inner.get("x-ms-navigationProperty") or name in KEPT_NAVIGATION:
            fields[name] = shape(inner)
            # A reference carries no "nullable" of its own, and Graph says null for whatever is not there.
            if "$ref" in inner:
                fields[name]["nullable"] = True
    return fields


def schema_of(name):
    schema = components["schemas"][name]
    out = shape(schema)
    fields = out.get("properties")
    if fields is None:
        return out
    if "value" in fields:
        fields.update({extra: text for extra in OF_COLLECTIONS})
        fields["@odata.count"] = {"type": "integer", "format": "int32"}
    else:
        fields.update({extra: text for extra in OF_ENTITIES})
    if name in ("microsoft.graph.message", "microsoft.graph.mailFolder", "microsoft.graph.user"):
        fields["@removed"] = {"$ref": "Removed"}
    return out


def body_of(content):
    for kind, described in content.get("content", {}).items():
        if "json" in kind:
            return described["schema"]
    return None


def method(path, verb, schemas):
    described = document["paths"][path][verb]
    out = {"id": f"{verb} {path}", "httpMethod": verb.upper(), "path": f"v1.0{path}", "parameters": {}}
    for parameter in map(resolve, described.get("parameters", [])):
        if parameter["in"] == "header":
            continue
        inner = shape(parameter["schema"])
        # Lists travel in one parameter, with commas.
        inner = dict(text) if inner["type"] == "array" else inner
        out["parameters"][parameter["name"]] = {
            **inner, "location": parameter["in"], "required": parameter.get("required", False),
        }
    if "requestBody" in described:
        out["request"] = {"$ref": name_of(body_of(described["requestBody"]))}
    answer = body_of(resolve(described["responses"]["2XX"]))
    if answer is not None:
        if "$ref" not in answer:
            name = f"Answer of {path}".replace("/", ".")
            components["schemas"][name] = answer
            answer = {"$ref": f"#/components/schemas/{name}"}
        out["response"] = {"$ref": name_of(answer)}
        entity = resolve(answer)
        items = entity.get("properties", {}).get("value") or (
            next((part["properties"]["value"] for part in entity.get("allOf", []) if "value" in part.get("properties", {})), None))
        out["entity"] = name_of(items["items"]) if items else name_of(answer)
    schemas.extend(part["$ref"] for part in (out.get("request"), out.get("response")) if part)
    return out


def referred(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from referred(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from referred(inner)


wanted = list(MORE_SCHEMAS)
methods = {f"{verb} {path}": method(path, verb, wanted) for path, verbs in WANTED for verb in verbs}
schemas = {"Removed": {"type": "object", "properties": {"reason": {"type": "string", "enum": ["deleted", "changed"]}}}}
while wanted:
    name = wanted.pop()
    if name not in schemas:
        schemas[name] = schema_of(name)
        wanted.extend(referred(schemas[name]))
# Graph makes these up itself: what comes after them in a link is nobody's business.
tokens = {"$skiptoken": text, "$deltatoken": text}
with open("graph.v1.json", "w") as target:
    json.dump({"id": "graph:v1.0", "parameters": tokens, "methods": methods, "schemas": schemas}, target, indent=1, sort_keys=True)
    target.write("\n")
